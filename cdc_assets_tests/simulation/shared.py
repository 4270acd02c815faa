"""What all parts of a world share: server, lake, broker, settings, and what was seen so far."""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cdc_assets.config.settings import CaptureConfig, MirrorSettings, NotificationSettings, SignalSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets_tests.simulation import law
from cdc_assets_tests.simulation.broker import Cluster
from cdc_assets_tests.simulation.replicas import Replicas
from cdc_assets_tests.simulation.restoring import RestorableServer
from cdc_assets_tests.simulation.scheduler import Scheduler
from cdc_assets_tests.simulation.store import Store
from cdc_assets_tests.unit.streaming.captures import make_config

DATABASES: Final = ("SalesDb", "StockDb")
NOTES: Final = "notes"
"""Topic of notifications."""
HOURS: Final = 10
"""Age at which events are dropped, where retention is on."""


@dataclass(frozen=True)
class Request:
    """A signal that asks for rows.

    Args:
        at: LSN of each database's log when it was sent.
        positions: how far the lake was then, by table.
        above: key above which rows are asked for, by table.
    """

    at: Mapping[str, Lsn]
    positions: Mapping[TableId, Lsn]
    above: Mapping[TableId, int]


class Shared:
    """State of one history.

    Args:
        folder: an empty one; it gets a lake for each kind of capture.
        seed: chooses all that happens.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)  # noqa: S311 - a history that can be repeated
        self.folder, self.lake, self.said = folder, folder / "lake", list[str]()
        self.lake.mkdir()
        self.scheduler = Scheduler(random.Random(-1 - seed), self.say)  # noqa: S311 - the same
        self.lakes = 1
        """Number of lakes that the capture has begun."""
        self.server = RestorableServer(names=DATABASES, replicas=Replicas(random.Random(f"replicas {seed}")))  # noqa: S311 - the same
        self.cluster = Cluster(self.scheduler)
        self.store = Store(self.scheduler, self.say)
        policy = self.rng.choice(["", "delete", "compact"])
        self.config = self._settings(policy)
        self.say(f"policy {policy or 'keep'}, {self.config.connection.databases}, {self.config.streaming.gap_policy}")
        self.tables = [self.server.create("lines", rows=4), self.server.create("orders", rows=7)]
        if self.rng.random() < 0.6:
            self.tables.append(self.server.create("bag", rows=5, keyless=True))
        if len(self.config.connection.databases) > 1:
            self.tables.append(self.server.create("items", rows=3, database=DATABASES[1]))
        self.signal_tables = [self.server.create_signals(name) for name in self.config.connection.databases]
        self.server.scan_all()
        self._next_key, self._signals, self._altered = 100, 0, 0
        self._dropped: dict[TableId, set[str]] = defaultdict(set)
        self.files = law.Files()
        self.ever: dict[TableId, set[str]] = {}
        """Positions of all events that were ever in a topic."""
        self.windows: dict[TableId, dict[str, int]] = {}
        """Numbers of the windows of these events."""
        self._stamps: dict[TableId, object] = {}
        """Newest commits of topics when they were read last."""
        self.published: dict[str, set[tuple[str, str]]] = {}
        """LSNs at which the mirror of a topic has ever said that it is right."""
        self.reads: dict[TableId, set[tuple[Lsn, tuple[int, object]]]] = {}
        """LSN and row of each READ of an incremental snapshot that was ever in a topic."""
        self.has_begun = False
        """Whether each kind of process has run once: before that nobody brings back what is away."""
        self.delivered: dict[TableId, set[str]] = {}
        """Positions of changes that another reader has delivered before the capture began."""
        self.read_from: dict[TableId, Lsn] = {}
        """The least LSN of READs of a snapshot: from there on each change is there, or told to be missing."""
        self.begun: dict[str, dict[TableId, Lsn]] = {}
        """Where tables began with which the capture of a database began: a first snapshot may be given up, and they begin later."""
        self.asked: dict[str, Request] = {}
        """Signals that ask for incremental snapshots."""
        self.wanted_last: list[TableId] = self.tables[:1]
        """Tables that were asked for last."""
        self.is_calm = False
        """Whether nothing fails for a while."""
        self.to_read_again = set[str]()
        """Topics whose mirrors go on only when the table was read again, as the newest run of mirrors said."""
        self.looks = Counter[str]()
        """What was said of the capture when somebody looked."""
        self.touched = set[TableId]()
        """Tables that changed behind the log."""
        self.lost: dict[TableId, set[str]] = {}
        """Positions of events in topics whose changes a restore has taken from the server."""
        self.left: dict[TableId, set[str]] = {}
        """Positions of READs whose rows were those of a history that a restore has ended."""
        self.losses = 0
        """How often a table of the lake was deleted or restored to an older version."""
        self.doubted = set[TableId]()
        """Tables whose topics were: a mirror that did not know it may have said that it is right, until it was told."""
        self.hurt = set[TableId]()
        """Tables that may have lost changes."""

    def _settings(self, policy: str) -> CaptureConfig:
        found = make_config(
            str(self.lake),
            max_iteration_transactions=3,
            slices=2,
            max_retries=1,
            retry_wait_s=0.1,
            gap_policy=self.rng.choice(["fail", "fail", "ignore", "resnapshot"]),
            transaction_metadata=self.rng.random() < 0.3,
            topic_hours=HOURS if policy else 0,
            compact_after_files=self.rng.choice([2, 4, 200]),
            **({"topic_policy": policy} if policy else {}),
        )
        databases = DATABASES[: self.rng.choice([1, 2])]
        connection = replace(found.connection, databases=databases)
        signals = SignalSettings(
            tuple(TableId(name, "dbo", "cdc_signal") for name in databases),
            chunk_rows=self.rng.choice([1, 2, 3]),
            watermarking=self.rng.choice(["insert_insert", "insert_delete"]),
        )
        snapshot = replace(found.snapshot, keyless_wait_s=5.0)
        notes = NotificationSettings(("sink",), NOTES)
        mirror = MirrorSettings(enabled=True)
        return replace(
            found, snapshot=snapshot, mirror=mirror, connection=connection, signals=signals, notifications=notes
        )

    def say(self, text: str) -> None:
        self.said.append(f"{self.scheduler.turn if hasattr(self, 'scheduler') else 0:5d} {text}")

    def topic(self, table: TableId) -> str:
        return f"shop.{table}"
