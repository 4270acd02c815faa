"""The law of mirrors: at any LSN up to which a mirror is right, its versions are the rows that the server had.

Random statements change data, columns, capture instances and whole tables, while a capture and its mirrors run now and
then and die at a random step now and then. `CDC_MIRROR_SEEDS` plays more workloads than the few of the default run.
"""

import contextlib
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.steps import listening
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.run.capture import Capture
from cdc_assets.standin.control import StandIn
from cdc_assets_tests.contract.changing import ChangingTables, Moment
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of
from cdc_assets_tests.unit.streaming.law import state_of

SEEDS = range(int(os.environ.get("CDC_MIRROR_SEEDS", "3")))
STEPS = 30
STATEMENTS = ["work"] * 8 + ["add", "add", "drop", "rename", "retype", "retype", "loosen_or_tighten", "second_instance"]
STATEMENTS += ["second_instance", "drop_old_instance", "disable", "enable", "enable", "create_again"]
STATEMENTS += ["stream"] * 5 + ["cut"] * 2 + ["repair"] * 2 + ["mirror", "rebuild"] + ["mirror_cut"] * 3


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


class Follower:
    """The capture and its mirrors beside the workload, and the LSNs at which the mirrors were right.

    Args:
        config: of the capture.
        tables: the workload.
    """

    def __init__(self, config: CaptureConfig, tables: ChangingTables) -> None:
        self._config, self._tables = config, tables
        self.right: dict[str, list[tuple[Lsn, Lsn]]] = {table.name: [] for table in tables.tables}

    def stream(self, *, repair: bool = False) -> None:
        with SqlServerSource(self._config.connection) as source:
            bulk = MssqlBulkSource(self._config.connection)
            capture = Capture(self._config, source, bulk, LocalRunner(2), SystemClock())
            captured = [table for table in self._tables.tables if table.instances]
            if repair:
                state = capture.state().tables
                own = [(table, TableId(DATABASE, "dbo", table.name)) for table in captured]
                broken = [(table, own) for table, own in own if own not in state or not state[own].streams]
                capture.snapshot([own for _, own in broken])
                for table, _ in broken:
                    self._tables.snapshotted(table)
            capture.stream()
        self._note()

    def _note(self) -> None:
        """Take note of the intervals in which the topics are complete."""
        for state in state_of(self._config).tables.values():
            intervals = self.right[state.table.table]
            if state.snapshot_lsn is None or state.position is None:
                continue
            if intervals and intervals[-1][0] == state.snapshot_lsn:
                intervals[-1] = (state.snapshot_lsn, max(intervals[-1][1], state.position))
            elif state.streams:
                intervals.append((state.snapshot_lsn, state.position))

    def mirror(self, *, anew: bool = False) -> None:
        troubles = CaptureMirrors(self._config, LocalRunner(2), SystemClock()).catch_up(anew=anew)
        assert not troubles
        if anew:  # what was before the newest loss is not in the topic's newest life
            self.right = {name: found[-1:] for name, found in self.right.items()}

    def cut(self, step: int) -> None:
        with listening(cut_after(step)), contextlib.suppress(PowerCutError):
            self.stream()

    def mirror_cut(self, step: int) -> None:
        with listening(cut_after(step)), contextlib.suppress(PowerCutError):
            self.mirror()


def check(config: CaptureConfig, name: str, moments: list[Moment], right: list[tuple[Lsn, Lsn]], said: str) -> int:
    """Compare each moment at which a mirror is right with the server's rows then."""
    topic = f"shop.{DATABASE}.dbo.{name}"
    mirrors = CaptureMirrors(config, LocalRunner(1), SystemClock())
    state = mirrors.states()[topic]
    reader = MirrorReader(mirrors.tables, topic, state.lsn)
    check_versions(reader.versions().to_pylist(), said)
    checked = 0
    for moment in moments:
        if any(start < moment.lsn <= end for start, end in right):
            rows = {row["id"]: row for row in reader.as_of(moment.lsn).to_pylist()}
            about = f"{name} at {moment.lsn}\n{said}"
            assert rows.keys() == moment.rows.keys(), about
            for key, row in moment.rows.items():
                for column, since in moment.columns.items():
                    if since is None or moment.touched.get(key, ZERO_LSN) > since:
                        found = rows[key].get(column)
                        if found is None and moment.lsn <= right[-1][0]:
                            continue  # of an earlier life, whose column may have had a type that the newest one cannot hold
                        assert same(found, row[column]), f"{column} of {key}: {found!r}, not {row[column]!r}, {about}"
            checked += 1
    return checked


def check_versions(versions: list[dict[str, Any]], said: str) -> None:
    """Intervals of a key are in order and do not overlap."""
    ends: dict[int, str] = {}
    for row in sorted(versions, key=lambda row: (row["id"], row["_valid_from_lsn"])):
        assert row["_valid_to_lsn"] is None or row["_valid_from_lsn"] < row["_valid_to_lsn"], said
        assert ends.get(row["id"], "") <= row["_valid_from_lsn"], f"{row}\n{said}"
        ends[row["id"]] = row["_valid_to_lsn"] or "~"


def same(found: Any, row: Any) -> bool:
    """Whether two values agree; a change of type in place also changes what was logged before it."""
    if isinstance(found, datetime) and type(row) is date:
        return found == datetime.combine(row, time())
    if isinstance(row, datetime) and isinstance(found, datetime):
        return abs((found - row).total_seconds()) < 0.001
    return bool(found == row) or (isinstance(found, str) and row is not None and found == str(row))


@pytest.mark.parametrize("seed", SEEDS)
def test_mirrors_hold_what_the_server_had(server: StandIn, tmp_path: Path, seed: int) -> None:
    config = config_of(server.port, server.password, str(tmp_path))
    config = replace(config, streaming=replace(config.streaming, idle_timeout_s=0.01, poll_interval_s=0.01))
    tables = ChangingTables(server, seed)
    follower = Follower(config, tables)
    follower.stream(repair=True)
    rng = random.Random(-1 - seed)  # noqa: S311 - a workload that can be repeated
    for _ in range(STEPS):
        chosen = rng.choice(STATEMENTS)
        if chosen in ("stream", "repair"):
            tables.said.append(f"-- {chosen}")
            follower.stream(repair=chosen == "repair")
        elif chosen in ("mirror", "rebuild"):
            tables.said.append(f"-- {chosen}")
            follower.mirror(anew=chosen == "rebuild")
        elif chosen in ("cut", "mirror_cut"):
            step = rng.randrange(1, 12)
            tables.said.append(f"-- {chosen} at step {step}")
            getattr(follower, chosen)(step)
        else:
            getattr(tables, chosen)()
    tables.enable()
    tables.work()
    follower.stream()
    follower.stream(repair=True)
    tables.work()
    follower.stream()
    follower.mirror()
    said = "\n".join(tables.said)
    checked = sum(
        check(config, table.name, tables.moments[table.name], follower.right[table.name], said)
        for table in tables.tables
    )
    assert checked
