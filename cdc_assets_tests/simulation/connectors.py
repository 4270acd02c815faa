"""A connector of another database, and a reader of files, each into a lake of its own beside the others.

- Each event of the connector's log is held once, in the order of the log, however often the connector repeats events.
- What the connector was told to be in the lake, so that its database may forget it, is in the lake.
- Each line of the files is held once, however files are renamed.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from cdc_assets.config.engine import EngineConfig, engine_config
from cdc_assets.connectors.engine.feed import Chunk, Lines, Offsets
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.engine.run import EngineRun
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.simulation.comparing import Comparing
from cdc_assets_tests.unit.connectors.engine.feeds import KEY, READY, event, value_schema
from cdc_assets_tests.unit.connectors.reader.trial import Trial

TOPICS: Final = ("shop.t0", "shop.t1", "shop.t2")
_LONG_MS: Final = "3600000"
"""Only rows and the end of the log end a batch, not the clock of the machine."""


class SourceLog:
    """The log of a database, of which a connector reads.

    Args:
        snapshot: number of its first events, which are rows of the first snapshot.
        forgets: whether it forgets what the connector was told to be in the lake.
    """

    def __init__(self, snapshot: int, *, forgets: bool) -> None:
        self.events: list[dict[str, Any]] = []
        self.snapshot, self.forgets = snapshot, forgets
        self.kept = 0
        self.grow(snapshot + 3)

    def grow(self, count: int) -> None:
        """So many events more."""
        for number in range(len(self.events) + 1, len(self.events) + count + 1):
            self.events.append(event(number, topic=TOPICS[number % len(TOPICS)]))


class LogFeed:
    """A connector that is started at an offset, and may begin some events before it.

    Args:
        pause: called before each chunk.
        told: called with the number of events of which it is told that they are in the lake.
    """

    started = True

    def __init__(self, log: SourceLog, rng: Random, pause: Callable[[str], None], told: Callable[[int], None]) -> None:
        self._log, self._rng, self._pause, self._told = log, rng, pause, told
        self.hesitates = False
        """Whether it may say nothing for so long that it seems to be at the end of the log."""
        self._place = 0
        self._ends: list[int] = []

    def __call__(self, offsets: Offsets, history: Sequence[str]) -> "LogFeed":
        at = max((offset["at"] for _, offset in offsets), default=0)
        first = max(self._log.kept, self._log.snapshot)  # a snapshot that is complete is not repeated
        self._place, self._ends = max(first, at - self._rng.randrange(4)) if at else 0, []
        return self

    @property
    def snapshot(self) -> bool:
        """Whether it is within its first snapshot."""
        return 0 < self._place < self._log.snapshot

    def next(self, timeout_s: float) -> Chunk | None:
        """Some events; at the end of the log none, after a time that counts as quiet."""
        self._pause("connector.next")
        begin = self._place
        if self.hesitates and begin >= self._log.snapshot and self._rng.random() < 0.3:
            return None
        end = min(len(self._log.events), begin + self._rng.choice([1, 1, 2, 3, 5]))
        if begin < self._log.snapshot:
            end = min(end, self._log.snapshot)
        if begin >= end:
            return None
        self._place = end
        self._ends.append(end)
        offsets = [({"server": "shop"}, {"at": end})]
        history = [json.dumps({"ts_ms": len(self._ends), "ddl": f"create table t{end}"})]
        return Chunk(len(self._ends), self._lines(begin, end), end - begin, offsets, history, end < self._log.snapshot)

    def _lines(self, begin: int, end: int) -> list[Lines]:
        found: dict[str, list[str]] = {}
        for place, entry in enumerate(self._log.events[begin:end]):
            line = {"n": place, **{name: entry[name] for name in ("key", "value", "headers")}}
            found.setdefault(entry["topic"], []).append(json.dumps(line))
        return [
            Lines(topic, int(topic[-1]), KEY, value_schema(), len(lines), 1000, "\n".join(lines).encode() + b"\n")
            for topic, lines in found.items()
        ]

    def committed(self, number: int) -> None:
        """Its database may forget what is in the lake."""
        end = self._ends[number - 1]
        self._told(end)
        if self._log.forgets:
            self._log.kept = max(self._log.kept, end)

    def close(self) -> None:
        """Nothing is open."""


class Connectors(Comparing):
    """Runs them, and holds their lakes against what there was."""

    def prepare_connectors(self) -> None:
        """Another database, and a folder of files."""
        self.log = SourceLog(self.rng.choice([0, 5]), forgets=self.rng.random() < 0.5)
        folder = self.folder / "files"
        folder.mkdir()
        rows = str(self.rng.choice([2, 5]))
        self.files_of = Trial(folder, files__topic="t", engine__batch__ms=_LONG_MS, engine__batch__rows=rows)
        self.lines, self.rotated = list[int](), 0
        self.engine_config = self._engine_config(self.folder / "engine")
        self.write_lines()

    def _engine_config(self, lake: Path) -> EngineConfig:
        return engine_config(
            {
                "connector.class": "MySqlConnector",
                "topic.prefix": "shop",
                "lake.path": str(lake),
                "engine.batch.rows": str(self.rng.choice([3, 8])),
                "engine.batch.ms": _LONG_MS,
                "stream.idle.timeout.ms": "1",
            }
        )

    def _engine_tables(self) -> TopicTables:
        return TopicTables(Location.of(self.engine_config.lake), "shop")

    def engine(self) -> None:
        """A connector runs until it has sent all."""
        feed = LogFeed(self.log, self.rng, self.scheduler.pause, self._check_told)
        feed.hesitates = not self.server.is_prompt
        EngineRun(self.engine_config, self._engine_tables(), feed, habits=READY).run()

    def reader(self) -> None:
        """Files are read to their ends."""
        self.files_of.run()

    def source_work(self) -> None:
        """Something is committed in the other database."""
        self.log.grow(self.rng.randrange(1, 5))

    def write_lines(self) -> None:
        """Somebody appends lines to the newest file."""
        numbers = range(len(self.lines) + 1, len(self.lines) + self.rng.randrange(2, 5))
        self.lines += numbers
        self.files_of.write("shop.json", *({"id": number} for number in numbers))

    def rotate(self) -> None:
        """The newest file is renamed; the next lines go into a new one."""
        path = self.files_of.events / "shop.json"
        if path.exists():
            self.rotated += 1
            path.rename(path.with_name(f"shop-{self.rotated:04d}.json"))

    def _held(self) -> list[int]:
        """Numbers of the connector's events in the lake, in the order of their positions."""
        rows: list[tuple[str, int]] = []
        for topic in TOPICS:
            held = self.files.of(Path(self.engine_config.lake.path) / topic)
            rows += [(row["position"], row["key"]["id"]) for row in held]
        return [number for _, number in sorted(rows)]

    def _check_told(self, end: int) -> None:
        held = self._held()
        lacking = sorted(set(range(1, end + 1)) - set(held))
        assert not lacking, f"the connector is told that {end} events are in the lake, which lacks {lacking[:5]}"

    def check_connectors(self) -> None:
        """All is there once."""
        wanted, held = list(range(1, len(self.log.events) + 1)), self._held()
        assert held == wanted, (
            f"the connector's lake lacks {set(wanted) - set(held)}, or holds events twice or in another order: {held}"
        )
        losses = EngineOverview(self.engine_config, audit_s=None).losses
        assert not losses, f"the connector's lake is said to have lost events: {losses}"
        read = [event["value"]["id"] for event in self.files_of.held("t")]
        assert sorted(read) == self.lines, f"of {len(self.lines)} lines the lake holds {read}"
