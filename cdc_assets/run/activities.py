"""The one place that makes what works in a run of a capture, and hands each part those that it works with.

What a part remembers (which signals were seen, which topics were compared with the manifest, which structures were
compared with the server) holds for the whole run, whoever asks it; so there must be one of each. What only a loop
remembers is made by the loop.
"""

from cdc_assets.capture.context import Context
from cdc_assets.capture.losses import Losses
from cdc_assets.incremental.snapshot import IncrementalSnapshot
from cdc_assets.run.account import Account
from cdc_assets.run.blocking import BlockingSnapshots
from cdc_assets.run.due import Due
from cdc_assets.run.housekeeping import Housekeeper
from cdc_assets.signals.structures import GivenStructures
from cdc_assets.signals.watch import SignalWatch
from cdc_assets.snapshot.run import Snapshotter
from cdc_assets.streaming.windows import WindowExecutor


class Activities:
    """What works in one run.

    Args:
        context: of the capture.
        account: hears of all that is committed.
    """

    def __init__(self, context: Context, account: Account) -> None:
        self.account = account
        self.due = Due(context)
        self.losses = Losses(context)
        self.windows = WindowExecutor(context, account)
        self.snapshotter = Snapshotter(context, self.losses, account)
        self.watch = SignalWatch(context)
        self.incremental = IncrementalSnapshot(context, self.watch, self.losses, account)
        self.structures = GivenStructures(context, self.watch)
        self.blocking = BlockingSnapshots(context, self.watch, self.incremental, self.snapshotter, account)
        self.housekeeper = Housekeeper(context, account)
