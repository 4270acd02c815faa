"""Builds the components of a run and connects them.

Some components keep state for the whole run: signals already seen, topics already compared with the manifest, structures already
compared with the server. So there must be exactly one of each. State of a single loop belongs to
the loop.
"""

from collections.abc import Iterable

from cdc_assets.capture.account import Account
from cdc_assets.capture.blocking import BlockingSnapshots
from cdc_assets.capture.due import Due
from cdc_assets.capture.housekeeping import Housekeeper, MakeRetention
from cdc_assets.capture.readings import OpenReadings
from cdc_assets.config.filters import Names
from cdc_assets.core.notification import Outbox
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.signal import SignalChannel
from cdc_assets.incremental.rounds import RoundReader
from cdc_assets.incremental.snapshot import IncrementalSnapshot
from cdc_assets.shared.losses import Losses
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.signals.structures import GivenStructures
from cdc_assets.signals.watch import SignalWatch, channels_of
from cdc_assets.snapshot.moment import Moments
from cdc_assets.snapshot.notices import Notices
from cdc_assets.snapshot.plan import SnapshotPlanner
from cdc_assets.snapshot.readers import Readers
from cdc_assets.snapshot.round_step import RoundContext
from cdc_assets.snapshot.rounds import Rounds
from cdc_assets.snapshot.run import Snapshotter, SnapshotWork
from cdc_assets.snapshot.structures import Structures
from cdc_assets.streaming.job_watch import JobWatch
from cdc_assets.streaming.planner import Planner
from cdc_assets.streaming.windows import WindowExecutor
from cdc_assets.system_topics.heartbeat import Heartbeat


class Activities:
    """The components of one run.

    Args:
        outbox: sends notifications that no row of the manifest records.
        adapters: signal channels that need an external client (Kafka).
        account: counts and reports all commits.
        make_retention: makes what drops old events.
    """

    def __init__(
        self,
        parts: CaptureParts,
        runner: TaskRunner,
        outbox: Outbox,
        adapters: Iterable[SignalChannel],
        account: Account,
        make_retention: MakeRetention,
    ) -> None:
        config, server, lake, ledger = parts.config, parts.server, parts.lake, parts.ledger
        self._parts, self._runner = parts, runner
        self.account = account
        self.heartbeat = Heartbeat(lake.tables, config.heartbeat, config.events)
        self.due = Due(server, lake.history, ledger, config)
        self.losses = Losses(ledger, lake, config)
        self.windows = WindowExecutor(parts, runner, account)
        self.snapshotter = self._snapshotter(outbox)
        self.readings = OpenReadings(server.source, ledger, config.mirror.settle_s, waits=config.mirror.enabled)
        self.watch = SignalWatch(server, lake, ledger, channels_of(config, adapters), config.signals)
        reader = RoundReader(parts, runner)
        self.incremental = IncrementalSnapshot(reader, parts, self.watch, self.losses, account)
        self.structures = GivenStructures(ledger, lake, self.watch)
        self.blocking = BlockingSnapshots(ledger, self.watch, self.incremental, self.snapshotter, account)
        self.housekeeper = Housekeeper(parts, self.losses, account, runner, make_retention(parts, runner))

    def _snapshotter(self, outbox: Outbox) -> Snapshotter:
        parts, config = self._parts, self._parts.config
        notices = Notices(parts.ledger, outbox, Names("table.include.list", config.filters.table_include))
        planner = SnapshotPlanner(parts, self._runner)
        moments = Moments(parts.server, parts.ledger.clock, config.snapshot, config.signals)
        rounds = Rounds(RoundContext(parts, Readers(parts, self._runner, moments), notices, self.account))
        work = SnapshotWork(planner, Structures(parts, planner), rounds, notices)
        return Snapshotter(parts, self.losses, work, self.heartbeat, self.account)

    def planner(self) -> Planner:
        """The planner of one loop; it starts without any cached state."""
        return Planner(self._parts, self._runner, self.losses)

    def jobs(self) -> JobWatch:
        """The capture job monitor of one loop."""
        return JobWatch(self._parts.server.source, self._parts.ledger.clock)
