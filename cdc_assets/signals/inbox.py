"""The in-process channel: requests of the command line and of Dagster, stored in a folder of the lake.

The requesting process is not the streaming run, which may not even exist at the time.
So a request is a file in `<prefix>.__signals`, which appears only when it is
complete; writing it needs no claim on the capture. The run
that holds the claim carries it out, records that, and removes the file. *Crash
between the two:* the file's name is recorded as handled. The id of a request is
remembered, so a request that is made twice (because a step of a Dagster run was
retried) acts once.
"""

import json
import re
import time
from collections.abc import Mapping

from cdc_assets.core.signal import Delivery, Signal, signal_of
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location

_NOT_A_NAME = re.compile(r"[^\w-]+", re.ASCII)
_SUFFIX = ".json"


class Inbox:
    """The requests to one capture; every method may raise LakeError.

    Args:
        prefix: the capture's topic prefix.
    """

    name, lasting = "in-process", False

    def __init__(self, location: Location, prefix: str) -> None:
        self._folder = Folder(location, f"{prefix}.__signals")

    def put(self, signal: Signal) -> None:
        """Store a request."""
        stamp, own_id = time.time_ns() // 1_000_000, _NOT_A_NAME.sub("_", signal.id)[:100]
        text = json.dumps({"id": signal.id, "type": signal.type, "data": signal.data})
        self._folder.write(f"{stamp:014d}-{own_id}{_SUFFIX}", text.encode())

    def receive(self, reached: Mapping[str, int]) -> Delivery:
        """See `SignalChannel`."""
        streams = {f"{self.name}:{name}": name for name in self._folder.names(_SUFFIX)}
        fresh = [name for stream, name in streams.items() if stream not in reached]
        signals = tuple(signal_of(self._folder.read(name), name, once=True) for name in fresh)
        return Delivery(signals, dict.fromkeys(streams, 1))

    def forget(self, delivery: Delivery) -> None:
        """See `SignalChannel`."""
        for stream in delivery.reached:
            self._folder.remove(stream.removeprefix(f"{self.name}:"))

    def waiting(self, reached: Mapping[str, int]) -> bool:
        """See `SignalChannel`."""
        return any(f"{self.name}:{name}" not in reached for name in self._folder.names(_SUFFIX))
