"""A simulated server, its capture, its mirrors, and time that passes: what topics hold, and what they ever held."""

import contextlib
import copy
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import MirrorSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.steps import listening
from cdc_assets.errors import CdcError
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.replacing import Replacement
from cdc_assets.lake.retained import Retained, retained
from cdc_assets.lake.rewriting import rewrite_files
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.publisher import Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets.publish.start import Beginning
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.lake.writing import join_all, nobody_else
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.histories import World as Capturing
from cdc_assets_tests.unit.streaming.histories import run
from cdc_assets_tests.unit.streaming.lake_reader import Event, events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import Row, SimulatedClock

HOURS = 10
"""Age at which events are dropped."""


class World(Capturing):
    """Two tables, their topics and their mirrors."""

    def __init__(self, path: str, *, mirrored: bool = True, policy: str = "delete", **changes: object) -> None:
        super().__init__(path, topic_hours=HOURS, topic_policy=policy, **changes)
        self.config = replace(self.config, mirror=MirrorSettings(enabled=mirrored))
        self.ever: dict[TableId, dict[str, Event]] = {table: {} for table in self.tables}
        self.begins: dict[str, str] = {}
        """LSNs at which mirrors begin that were made anew from a compacted topic."""
        self.stream(what="snapshot")

    def stream(self, cut: int | None = None, what: str = "stream") -> str:
        """Run the capture, which drops what it may; the step at which it died, if it did."""
        died = run(self.server, self.config, cut, what)
        for table in self.tables:
            self.ever[table] |= {event.position: event for event in events_of(self.config, table)}
        return died

    def copy(self, path: Path) -> "World":
        """The same in another lake, with a server of its own."""
        shutil.copytree(self.config.lake.path, path)
        made = copy.copy(self)
        made.server, made.ever = copy.deepcopy(self.server), {table: dict(found) for table, found in self.ever.items()}
        made.config = replace(self.config, lake=replace(self.config.lake, path=str(path)))
        return made

    def read_again(self) -> None:
        """A snapshot of both tables."""
        make_capture(self.server, self.config).snapshot(self.tables)
        self.stream()

    def mirrors(self) -> CaptureMirrors:
        return CaptureMirrors(self.config, LocalRunner(1), SimulatedClock(self.server))

    def mirror(self, cut: int | None = None, *, anew: bool = False) -> dict[str, CdcError]:
        with listening(cut_after(cut or 0)), contextlib.suppress(PowerCutError):
            return dict(self.mirrors().catch_up(anew=anew))
        return {}

    def rebuild(self, cut: int | None) -> None:
        """Make the mirrors anew; who cannot have all events for it is told."""
        held = {self.topic(table): self.holds(table) for table in self.tables}
        refused = self.mirror(cut, anew=True)
        for topic, holds in held.items():
            self.begins[topic] = max(self.begins.get(topic, ""), holds.rows)
            assert cut or bool(refused.get(topic)) == bool(holds.after and not holds.rows), "readers are told"

    def later(self, hours: float) -> None:
        self.server.now += timedelta(hours=hours)

    def compact(self) -> None:
        tables = TopicTables.of(self.config)
        for table in self.tables:
            join_all(tables, self.topic(table))

    def cut(self, pick: int) -> None:
        """Cut each file in two behind one of its rows, as tasks cut large transactions."""
        tables, now = TopicTables.of(self.config), int(self.server.now.timestamp() * 1000)
        for directory in (name for table in self.tables for name in tables.generations(self.topic(table))):
            handle = tables.open(directory)
            assert handle is not None
            paths, made = pa.table(handle.get_add_actions())["path"].to_pylist(), list[DataFile]()
            for number, path in enumerate(paths):
                rows = pq.read_table(path, filesystem=tables.location.existing(directory)).combine_chunks()
                place = 1 + pick % max(1, rows.num_rows - 1)
                for part in (rows.slice(0, place), rows.slice(place)):
                    with TopicWriter(tables.location, directory, rows.schema, -1, f"cut-{number}-") as writer:
                        writer.write(part.to_batches())
                    made += [replace(file, written_ms=now) for file in writer.files]
            rewrite_files(tables, directory, Replacement(paths, made), nobody_else)

    def turn(self, picks: Sequence[int]) -> None:
        """A transaction, captured and mirrored."""
        self.work(picks)
        self.stream()
        assert not self.mirror()

    @staticmethod
    def topic(table: TableId) -> str:
        return f"shop.{table}"

    def holds(self, table: TableId) -> Retained:
        return retained(TopicTables.of(self.config), self.topic(table))

    def rows_at(self, table: TableId, lsn: Lsn) -> dict[int, object]:
        """Rows that the server had right after a commit, by key."""
        rows: dict[int, Row] = {
            event.key: event.after or {} for event in self.ever[table].values() if event.op == "r" and event.lsn <= lsn
        }
        for change in self.server.history:
            if change.table == table and change.lsn <= lsn:
                key = int(str(change.row["id"]))
                if change.operation in (2, 4):
                    rows[key] = change.row
                elif change.operation == 1:
                    rows.pop(key, None)
        return {key: row["note"] for key, row in rows.items()}

    def check(self) -> None:
        """Compare topics with what they ever held, and mirrors with the server at each commit."""
        assert all(entry.status == "healthy" for entry in state_of(self.config).tables.values())
        mirrors = self.mirrors()
        for table in self.tables:
            topic, left = self.topic(table), {event.position for event in events_of(self.config, table)}
            holds, known = self.holds(table), mirrors.states().get(topic)
            assert left <= self.ever[table].keys()
            assert {at for at in self.ever[table] if at[:22] > holds.after} <= left, (
                "what remains is complete after its LSN"
            )
            gone = [event for at, event in self.ever[table].items() if at not in left]
            assert all(event.window_id <= holds.window for event in gone)
            if holds.rows:
                self._check_fold(table, Lsn.parse(holds.rows), left)
            if known is None or not known.step:
                assert not gone
                continue
            assert all(event.position[:22] < known.lsn for event in gone), "mirrors have what was dropped"
            reader = MirrorReader(mirrors.tables, topic, known.lsn)
            for lsn in self._commits(self.begins.get(topic, ""), known.lsn):
                rows = {row["id"]: row["note"] for row in reader.as_of(lsn).to_pylist()}
                assert rows == self.rows_at(table, lsn), f"{table} at {lsn}"

    def _commits(self, least: str, greatest: str) -> set[Lsn]:
        return {change.lsn for change in self.server.history if least <= str(change.lsn) <= greatest}

    def _check_fold(self, table: TableId, least: Lsn, left: set[str]) -> None:
        """The last events of each key that are left make the rows, at each commit from an LSN on."""
        events = sorted((event for at, event in self.ever[table].items() if at in left), key=lambda one: one.position)
        for lsn in {least, *self._commits(str(least), "~")}:
            rows = {event.key: event for event in events if event.op and event.lsn <= lsn}
            found = {key: (event.after or {})["note"] for key, event in rows.items() if event.op != "d"}
            assert found == self.rows_at(table, lsn), f"{table} at {lsn}"


def publisher(world: World, broker: MemoryBroker, after: str = "") -> Publisher:
    """A publisher of its topics."""
    feed = Feed(world.config, TopicTables.of(world.config))
    broker.begins_with(feed)
    return Publisher(
        feed, broker, Renderer(world.config.kafka), 1000, lambda _: None, Beginning({"": after} if after else {})
    )


def publish_all(world: World, broker: MemoryBroker, after: str = "") -> Publisher:
    """Publish what there is."""
    found = publisher(world, broker, after)
    found.open()
    while found.turn():
        pass
    return found


def require_published(world: World, broker: MemoryBroker) -> None:
    """Every event there ever was is published once."""
    for table in world.tables:
        assert [record.position for record in broker.topics[world.topic(table)]] == sorted(world.ever[table])
