"""A snapshot by a signal that has read nothing is told; names are compared as the connector does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.config.engine import engine_config
from cdc_assets.connectors.engine.feed import Chunk, Lines
from cdc_assets.connectors.engine.notices import SnapshotNotices
from cdc_assets.connectors.engine.run import EngineRun
from cdc_assets.connectors.engine.signal_targets import named_tables
from cdc_assets.connectors.engine.topics import with_notifications
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.unit.connectors.engine.feeds import READY, ListFeed, event

MYSQL = {"connector.class": "MySqlConnector", "topic.prefix": "shop"}
INITIAL, INCREMENTAL = "Initial Snapshot", "Incremental Snapshot"


def note(kind: str, aggregate: str = INITIAL, **more: str) -> dict[str, Any]:
    return {"id": "s1", "aggregate_type": aggregate, "type": kind, "additional_data": list(more.items())}


def scanned(table: str, status: str, aggregate: str = INCREMENTAL) -> dict[str, Any]:
    return note("TABLE_SCAN_COMPLETED", aggregate, scanned_collection=table, status=status)


def troubles(*notifications: dict[str, Any]) -> list[str]:
    notices = SnapshotNotices(lambda: "Captured are: shop.items. ")
    return [text for found in notifications if (text := notices.take(found))]


OWN = note("SKIPPED")
ENDED = note("COMPLETED", INCREMENTAL)


def test_an_incremental_snapshot_of_a_misspelt_table_is_told() -> None:
    begun = note("STARTED", INCREMENTAL, data_collections="shop.items,shop.itmes")
    [text] = troubles(OWN, begun, scanned("shop.items", "SUCCEEDED"), scanned("shop.itmes", "UNKNOWN_SCHEMA"), ENDED)
    assert text.startswith("The snapshot by signal 's1' has not read 'shop.itmes': the connector captures no table")
    assert "Captured are: shop.items. Next: correct the name" in text


@pytest.mark.parametrize(
    ("status", "step"),
    [("NO_PRIMARY_KEY", "surrogate-key"), ("SQL_EXCEPTION", "condition"), ("STOPPED", "see the connector's log")],
)
def test_a_table_that_was_not_read_is_told_with_the_next_step(status: str, step: str) -> None:
    [text] = troubles(OWN, scanned("shop.items", status), ENDED)
    assert step in text.partition("Next: ")[2]


def test_a_blocking_snapshot_without_tables_is_told() -> None:
    [text] = troubles(OWN, note("STARTED"), note("COMPLETED"))
    assert "has read no table" in text
    read = scanned("shop.items", "SUCCEEDED", INITIAL)
    assert troubles(OWN, note("STARTED"), read, note("COMPLETED"), note("STARTED"), note("COMPLETED")) == [text]


def test_snapshots_that_read_what_was_asked_are_no_trouble() -> None:
    read = [scanned("shop.items", "SUCCEEDED"), scanned("shop.lines", "EMPTY")]
    assert not troubles(note("STARTED"), note("COMPLETED"), *read, ENDED)  # the first of an empty database
    assert not troubles(OWN, note("STARTED"), note("ABORTED"))


class Notified(ListFeed):
    """Sends notifications after its events."""

    def __call__(self, *given: Any) -> "ListFeed":
        super().__call__(*given)
        fields = [{"type": "string", "optional": True, "field": name} for name in ("aggregate_type", "type")]
        schema = {"type": "struct", "optional": False, "name": "Value", "fields": fields}
        values = [{"aggregate_type": INITIAL, "type": kind} for kind in ("SKIPPED", "STARTED", "COMPLETED")]
        lines = [json.dumps({"n": n, "key": None, "value": value, "headers": []}) for n, value in enumerate(values)]
        data = "\n".join(lines).encode() + b"\n"
        self._pending.append(Chunk(9, [Lines("shop.notifications", 77, None, schema, len(lines), 1000, data)], 3, []))
        return self


def test_a_run_tells_what_a_signal_has_not_read(tmp_path: Path) -> None:
    own = {"lake.path": str(tmp_path), "stream.idle.timeout.ms": "1"}
    config = with_notifications(engine_config(MYSQL | own))
    feed = Notified([event(number, topic="shop.shop.items1") for number in range(1, 4)], [2, 3])
    tables = TopicTables(Location.of(config.lake), "shop")
    config = replace(config, batch_rows=1)
    [text] = EngineRun(config, tables, feed, habits=READY).run().unread
    assert "Captured are: shop.items1. Next" in text


TABLES = [TableId("shop", "", "items"), TableId("shop", "", "lines")]


def test_names_are_expressions_or_letters_of_whole_names() -> None:
    config = engine_config(MYSQL)
    assert named_tables(config, ["shop.items", r"shop\.l.*"], TABLES).found == ["shop.items", "shop.lines"]
    found = named_tables(config, ["shop.items", "items", "SHOP.LINES"], TABLES)
    assert found.unknown == ["items", "SHOP.LINES"]
    found.require()
    assert "'items', 'SHOP.LINES'" in found.problem
    assert "database.table" in found.problem
    with pytest.raises(ConfigurationError, match=r"shop\.items, shop\.lines.*nothing was sent"):
        named_tables(config, ["shop.itmes"], TABLES).require()
    named_tables(config, [], TABLES).require()  # `stop-snapshot` of whatever is read


def test_postgresql_names_no_database() -> None:
    config = engine_config(MYSQL | {"connector.class": "PostgresConnector"})
    table = TableId("shop", "public", "items")
    assert named_tables(config, ["public.items"], [table]).found == ["public.items"]
    assert named_tables(config, ["shop.public.items"], [table]).unknown
