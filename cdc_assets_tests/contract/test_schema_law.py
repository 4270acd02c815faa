"""The law of changing structures: a topic, decoded at any LSN, gives the rows that the server had at that LSN.

Random statements change data, columns, capture instances and whole tables, while a capture
runs now and then and dies at a random step now and then. Afterwards each topic is read as any reader would: events up to the LSN
in order, over all generations, from the last life of the table on (its DROP in the schema
history, or its gap). `CDC_SCHEMA_SEEDS` plays more workloads than three.
"""

import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.lake.evolution import meaning
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.contract.changing import Moment, Row
from cdc_assets_tests.contract.follower import STATEMENTS, Follower, same
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.unit.streaming.law import state_of
from mssql_standin.control import StandIn

SEEDS = range(int(os.environ.get("CDC_SCHEMA_SEEDS", "3")))
STEPS = 30


class Topic:
    """A topic, decoded.

    Args:
        config: of the capture.
        table: whose topic.
    """

    def __init__(self, config: CaptureConfig, table: TableId) -> None:
        tables = TopicTables(Location.of(config.lake), "reader")
        self.events: list[tuple[str, int, Row | None]] = []
        for directory in tables.generations(f"shop.{table}"):
            handle = tables.open(directory)
            assert handle is not None
            fields = {field.name: field for field in pa.schema(handle.schema().to_arrow()).field("value").type}
            row = {field.name: field for field in fields["after"].type}
            for event in handle.to_pyarrow_table().to_pylist():
                value = event["value"]
                if value is not None:
                    after = {name: plain(found, row[name]) for name, found in (value["after"] or {}).items()}
                    self.events.append((event["position"], event["key"]["id"], after or None))
        self.events.sort(key=lambda event: event[0])
        drops = [row for row in rows_of_topic(config, "shop.__schema_history") if row["type"] == "DROP"]
        self.starts = [Lsn.parse(str(row["commit_lsn"])) for row in drops if row["table"] == table.table]
        self.starts += [until for _, until in state_of(config).tables[table].gaps]

    def at(self, lsn: Lsn) -> dict[int, Row]:
        """The rows at an LSN."""
        start = max((start for start in self.starts if start <= lsn), default=ZERO_LSN)
        rows: dict[int, Row] = {}
        for position, key, after in self.events:
            place = Lsn.parse(position[:22])
            if start <= place <= lsn:
                if after is None:
                    rows.pop(key, None)
                else:
                    rows[key] = after
        return rows


def plain(value: Any, field: pa.Field) -> Any:
    """An event's value as Python has it, by the meaning that the lake's field declares."""
    match meaning(field).rpartition(".")[2]:
        case "Date" if value is not None:
            return date(1970, 1, 1) + timedelta(days=value)
        case "Timestamp" if value is not None:
            return moment(value * 1000)
        case "MicroTimestamp" if value is not None:
            return moment(value)
        case "NanoTimestamp" if value is not None:
            return moment(value // 1000)
    return value


def moment(micros: int) -> datetime:
    """Microseconds since 1970 without zone."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).replace(tzinfo=None)


def check(topic: Topic, moment: Moment, said: str) -> None:
    """The decoded rows are the server's; a row that is older than a column's definition may differ in it."""
    found = topic.at(moment.lsn)
    about = f"at {moment.lsn}\n{said}"
    assert found.keys() == moment.rows.keys(), about
    for key, row in moment.rows.items():
        for name, since in moment.columns.items():
            if since is None or moment.touched.get(key, ZERO_LSN) > since:
                assert same(found[key].get(name), row[name]), (
                    f"{name} of {key}: {found[key].get(name)!r}, not {row[name]!r}, {about}"
                )


@pytest.mark.law
@pytest.mark.parametrize("seed", SEEDS)
def test_topics_hold_what_the_server_had(fresh_server: StandIn, tmp_path: Path, seed: int) -> None:
    capture = Follower(fresh_server, tmp_path, seed)
    capture.play(STATEMENTS, STEPS)
    checked = 0
    for table in capture.tables.tables:
        topic = Topic(capture.config, TableId(DATABASE, "dbo", table.name))
        moments, claims = capture.tables.moments[table.name], capture.claims[table.name]
        assert claims[-1][1] >= moments[-1].lsn, capture.said
        for moment in moments:
            if any(start < moment.lsn <= end for start, end in claims):
                check(topic, moment, capture.said)
                checked += 1
    assert checked
