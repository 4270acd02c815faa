"""The in-process channel: requests of the command line and of Dagster, stored in a folder of the lake.

The requesting process is not the streaming run, which may not even exist at the time.
So a request is a file in `<prefix>.__signals`, which appears only when it is
complete; writing it needs no claim on the capture. The run
that holds the claim carries it out, records that, and removes the file. *Crash
between the two:* the file's name is recorded as handled. The id of a request is
remembered, so a request that is made twice (because a step of a Dagster run was
retried) acts once. A file that cannot be read holds up no other request: it is left, and named in the log once.
"""

import json
import logging
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping

from cdc_assets.core.signal import Delivery, Signal, signal_of
from cdc_assets.errors import LakeError
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location

log = logging.getLogger(__name__)

_NOT_A_NAME = re.compile(r"[^\w-]+", re.ASCII)
_SUFFIX = ".json"
_STAMP = re.compile(r"([0-9]{14})-")


class Inbox:
    """The requests to one capture; every method may raise LakeError.

    Args:
        prefix: the capture's topic prefix.
    """

    name, lasting = "in-process", False

    def __init__(self, location: Location, prefix: str) -> None:
        self._folder = Folder(location, f"{prefix}.__signals")
        self._unreadable: set[str] = set()

    def put(self, signal: Signal) -> None:
        """Store a request after those that wait, whatever the clock says: it may have been set back, or be another host's."""
        waiting = [int(found[1]) for found in map(_STAMP.match, self._folder.names(_SUFFIX)) if found]
        stamp = max([time.time_ns() // 1_000_000, *(before + 1 for before in waiting)])
        own_id = _NOT_A_NAME.sub("_", signal.id)[:100]
        text = json.dumps({"id": signal.id, "type": signal.type, "data": signal.data}).encode()
        # another process may take the same millisecond for a request whose id is written alike
        self._folder.write(f"{stamp:014d}-{own_id}-{zlib.crc32(text):08x}{_SUFFIX}", text)

    def receive(self, reached: Mapping[str, int]) -> Delivery:
        """See `SignalChannel`."""
        names = self._folder.names(_SUFFIX)
        fresh = dict(self._requests(name for name in names if self._stream(name) not in reached))
        signals = tuple(signal_of(text, name, once=True) for name, text in fresh.items())
        streams = (self._stream(name) for name in names)
        new = {self._stream(name) for name in fresh}
        return Delivery(signals, {stream: 1 for stream in streams if stream in reached or stream in new})

    def _requests(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Names and contents of those files that can be read."""
        for name in names:
            try:
                yield name, self._folder.read(name)
            except LakeError as error:
                if name not in self._unreadable:
                    log.warning(
                        "A request to this capture cannot be read, and is left where it is: %s: %s", name, error
                    )
                self._unreadable.add(name)

    def _stream(self, name: str) -> str:
        return f"{self.name}:{name}"

    def forget(self, delivery: Delivery) -> None:
        """See `SignalChannel`."""
        for stream in delivery.reached:
            self._folder.remove(stream.removeprefix(f"{self.name}:"))

    def waiting(self, reached: Mapping[str, int]) -> bool:
        """See `SignalChannel`."""
        fresh = (name for name in self._folder.names(_SUFFIX) if self._stream(name) not in reached)
        return any(True for _ in self._requests(fresh))
