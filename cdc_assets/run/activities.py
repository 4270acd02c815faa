"""The one place that makes what works in a run of a capture, and hands each part those that it works with.

What a part remembers (which signals were seen, which topics were compared with the manifest, which structures were
compared with the server) holds for the whole run, whoever asks it; so there must be one of each. What only a loop
remembers is made by the loop.
"""

from collections.abc import Iterable

from cdc_assets.capture.lake import Lake
from cdc_assets.capture.ledger import Ledger
from cdc_assets.capture.losses import Losses
from cdc_assets.capture.server import Server
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.notification import Outbox
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.signal import SignalChannel
from cdc_assets.heartbeat import Heartbeat
from cdc_assets.incremental.rounds import RoundReader
from cdc_assets.incremental.snapshot import IncrementalSnapshot
from cdc_assets.run.account import Account
from cdc_assets.run.blocking import BlockingSnapshots
from cdc_assets.run.due import Due
from cdc_assets.run.housekeeping import Housekeeper
from cdc_assets.signals.structures import GivenStructures
from cdc_assets.signals.watch import SignalWatch, channels_of
from cdc_assets.snapshot.notices import Notices
from cdc_assets.snapshot.plan import SnapshotPlanner
from cdc_assets.snapshot.rounds import Rounds
from cdc_assets.snapshot.run import Snapshotter
from cdc_assets.snapshot.structures import Structures
from cdc_assets.streaming.job_watch import JobWatch
from cdc_assets.streaming.planner import Planner
from cdc_assets.streaming.windows import WindowExecutor


class Activities:
    """What works in one run.

    Args:
        ledger: what is recorded about it.
        outbox: tells what no row of the manifest records.
        adapters: channels of signals that need one.
        account: hears of all that is committed.
    """

    def __init__(
        self,
        config: CaptureConfig,
        server: Server,
        lake: Lake,
        ledger: Ledger,
        runner: TaskRunner,
        outbox: Outbox,
        adapters: Iterable[SignalChannel],
        account: Account,
    ) -> None:
        self._config, self._server, self._lake, self._ledger, self._runner = config, server, lake, ledger, runner
        self.account = account
        self.heartbeat = Heartbeat(lake.tables, config.heartbeat, config.events)
        self.due = Due(server, lake.history, ledger, config)
        self.losses = Losses(ledger, lake, config)
        self.windows = WindowExecutor(server, lake, ledger, runner, config.streaming, account)
        self.snapshotter = self._snapshotter(outbox)
        self.watch = SignalWatch(server, lake.history, ledger, channels_of(config, adapters), config.signals)
        reader = RoundReader(server, lake, ledger, runner, config.signals)
        self.incremental = IncrementalSnapshot(reader, server, lake, ledger, self.watch, self.losses, account)
        self.structures = GivenStructures(ledger, lake, self.watch)
        self.blocking = BlockingSnapshots(ledger, self.watch, self.incremental, self.snapshotter, account)
        self.housekeeper = Housekeeper(lake.tables, ledger.manifest, config, account)

    def _snapshotter(self, outbox: Outbox) -> Snapshotter:
        server, lake, ledger, settings = self._server, self._lake, self._ledger, self._config.snapshot
        notices = Notices(ledger, outbox)
        planner = SnapshotPlanner(server, lake, ledger, self._runner, settings)
        only_captured = self._config.history.only_captured_tables
        structures = Structures(server, lake, ledger, planner, only_captured=only_captured)
        rounds = Rounds(server, lake, ledger, self._runner, settings, notices, self.account)
        return Snapshotter(
            ledger, self.losses, planner, structures, rounds, notices, self.heartbeat, server.source, settings
        )

    def planner(self) -> Planner:
        """Plans the windows of one loop, which looks at everything anew."""
        return Planner(self._server, self._lake, self._ledger, self._runner, self._config.streaming, self.losses)

    def jobs(self) -> JobWatch:
        """Asks about capture jobs in one loop."""
        return JobWatch(self._server.source, self._ledger.clock)
