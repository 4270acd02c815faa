"""A snapshot that a run is asked for: a signal to the connector through a private file, and a run that lasts until it is taken.

*Why a file.* The connector's file channel needs no table and no right in the database, and the file is the run's own: no
other signal is mixed up with it. The connector reports by notifications, which arrive as events of a topic: so the run
knows when the snapshot is complete, and these reports are in the lake.

*Asked twice.* A connector passes over a table whose statement has failed. PostgreSQL's does that also when it has closed the statement itself,
between two of its threads; so tables of an incremental snapshot that it has refused are requested once more. What was read of them is read again.

*Crash between any two steps.* A signal that was not taken up is gone with its file, and the run has failed: it is requested
for again. A blocking snapshot that was taken up and not finished is one batch that is not recorded, so nothing of it is in
the lake; the same holds then. An incremental one continues in the next run: its place is part of the recorded offsets.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cdc_assets.config.engine import EngineConfig
from cdc_assets.config.patterns import expression_for
from cdc_assets.connectors.engine.feed import Chunk, EngineFeed
from cdc_assets.connectors.engine.notices import ENDS, STARTED, SnapshotNotices, notifications, refused
from cdc_assets.core.signal import Signal
from cdc_assets.errors import ConfigurationError, EngineError, InvalidValueError, shortened

log = logging.getLogger(__name__)

_TAKEN_UP_S = 120.0
_WAKE_EVERY_S = 5.0
_LATE_S = 1.0
"""Seconds by which a look at the connector may take longer than asked for; more is sleep of this process."""
INCREMENTAL_NEEDS = (
    "create a table (id, type, data), name it in signal.data.collection, and have source in signal.enabled.channels; or set "
    "read.only=true, where the connector can (MySQL with GTIDs, PostgreSQL); or request a blocking snapshot"
)


def append_signal(path: Path, signal: Signal) -> None:
    """Put a signal into a file that the connector's file channel reads, unless the file has that very line.

    Raises:
        InvalidValueError: its data are no JSON.
        EngineError: the file cannot be written.
    """
    append_lines(path, [signal_line(signal)])


def signal_line(signal: Signal) -> str:
    """A signal as the connector's file channel reads it.

    Raises:
        InvalidValueError: its data are no JSON.
    """
    try:
        data = json.loads(signal.data or "{}")
    except (ValueError, RecursionError):
        raise InvalidValueError("data", shortened(str(signal.data)), "JSON", "send the signal again") from None
    return json.dumps({"id": signal.id, "type": signal.type, "data": data})


def signals_in(path: Path) -> list[Signal]:
    """Signals that wait in a connector's signal file."""
    found = list[Signal]()
    with suppress(OSError, UnicodeDecodeError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                given = json.loads(line)
                found.append(Signal(str(given["id"]), str(given["type"]), json.dumps(given.get("data"))))
    return found


def append_lines(path: Path, lines: Sequence[str], *, alone: bool = False) -> bool:
    """Put lines into a signal file, unless it has them, by one write.

    The connector empties the file as soon as it has read a line. So what is written after the first of several lines, while it does, would
    be gone; of one write it reads all lines, or none.

    Args:
        alone: whether nothing is written after other lines, which the connector may just be reading.

    Returns:
        Whether the file has them now.

    Raises:
        EngineError: the file cannot be written.
    """
    if not lines:
        return True  # and no file is made
    try:
        with path.open("ab+", buffering=0) as file:
            file.seek(0)
            before = file.readall().decode()
            new = [line for line in dict.fromkeys(lines) if line not in before.splitlines()]
            if new and before and alone:
                return False
            if new:
                begin = "" if not before or before.endswith("\n") else "\n"
                content = (begin + "".join(f"{line}\n" for line in new)).encode()
                if (written := file.write(content)) != len(content):
                    raise OSError(f"{written} of {len(content)} bytes were written")
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(f"The signal file {path} cannot be written: {error}. Next: check signal.file.") from error
    return True


def signal_file(config: EngineConfig) -> Path:
    """The file that the connector's file channel reads."""
    return Path(config.properties.get("signal.file") or "file-signals.txt")


def holds_signals(path: Path) -> bool:
    """Whether a signal file holds lines that the connector has not read; it empties the file when it reads them."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def channels_of(config: EngineConfig) -> list[str]:
    """Signal channels of the connector."""
    texts = config.properties.get("signal.enabled.channels", "source").split(",")
    return [text.strip() for text in texts if text.strip()]


def takes_signals(config: EngineConfig) -> bool:
    """Whether the configuration shows that signals are to be sent."""
    return bool(config.properties.get("signal.data.collection")) or "signal.enabled.channels" in config.properties


def why_no_incremental(config: EngineConfig) -> str:
    """Why an incremental snapshot would wait after its first chunk for ever; empty if it would not.

    The connector compares each chunk with the log between two marks, which it writes into the signal table and
    reads again by the channel `source`; with `read.only` it takes positions of the log instead.
    """
    given = config.properties
    if given.get("read.only", "false").lower() == "true":
        return ""
    if not given.get("signal.data.collection"):
        return "there is no signal table (signal.data.collection), into which the connector writes its marks around each chunk"
    if "source" not in channels_of(config):
        channels = ",".join(channels_of(config))
        return (
            f"signal.enabled.channels is {channels}: without source the connector never sees its marks around a chunk"
        )
    return ""


def require_incremental(config: EngineConfig) -> None:
    """Check that an incremental snapshot that is requested now could be completed.

    Raises:
        ConfigurationError: it would wait for ever.
    """
    if reason := why_no_incremental(config):
        raise ConfigurationError(
            "signal.enabled.channels",
            config.properties.get("signal.enabled.channels"),
            f"source among them, and signal.data.collection, for an incremental snapshot: {reason}",
            INCREMENTAL_NEEDS,
        )


def with_file_channel(config: EngineConfig, path: Path) -> EngineConfig:
    """The settings with a private file as a signal channel beside the given ones; a file of their own is replaced.

    With a signal table there is the channel `source` in any case: by it a connector reads its own marks around each chunk
    of an incremental snapshot, without which it waits after the first chunk for ever, however it was requested.
    """
    marks = ["source"] if config.properties.get("signal.data.collection") else []
    channels = dict.fromkeys([*channels_of(config), *marks, "file"])
    own = {"signal.enabled.channels": ",".join(channels), "signal.file": str(path)}
    return replace(config, properties={"signal.poll.interval.ms": "1000", **config.properties, **own})


class RequestedSnapshot:
    """A feed that sends a signal when its connector reads, and is not idle before the snapshot is complete.

    Args:
        feed: the connector.
        path: the private signal file.
        handed: the request; is given another one for tables that are requested once more.
        topic: of the connector's notifications.
        nudge: called every few seconds until the connector takes up the signal.
        patience_s: how long it may take to do so, without the time in which this process was stopped.
    """

    def __init__(
        self,
        feed: EngineFeed,
        path: Path,
        handed: list[Signal],
        topic: str,
        nudge: Callable[[], None] = lambda: None,
        patience_s: float = _TAKEN_UP_S,
    ) -> None:
        self._feed, self._path, self._topic = feed, path, topic
        self._handed, self._signal = handed, handed[-1]
        self._patience_s, self._nudge, self._nudged = patience_s, nudge, 0.0
        self._is_sent, self._waited_s = False, 0.0
        self._begun = self._ended = self._has_repeated = False
        self._refused: list[str] = []
        """Tables of which a statement has failed."""
        self._notices = SnapshotNotices(lambda: "")
        self.troubles: list[str] = []

    @property
    def started(self) -> bool:
        """Whether the connector reads its source and the snapshot is complete: then nothing new is idleness."""
        return self._feed.started and self._ended

    @property
    def snapshot(self) -> bool:
        """Whether the connector takes a snapshot, which it could not resume."""
        return self._feed.snapshot

    def next(self, timeout_s: float) -> Chunk | None:
        """The next chunk.

        Raises:
            EngineError: the connector has ended, or does not take up the signal.
        """
        if not self._is_sent and self._feed.started:
            append_signal(self._path, self._signal)
            self._is_sent, self._nudged = True, time.monotonic()
        asked = time.monotonic()
        chunk = self._feed.next(timeout_s)
        if chunk is not None:
            for notification in notifications(chunk, self._topic):
                self._take(notification)
        if self._is_sent and not self._begun:
            self._wait(min(time.monotonic() - asked, timeout_s + _LATE_S))
        return chunk

    def _wait(self, seconds: float) -> None:
        """Nudge a connector that has not taken up the signal, for so long."""
        self._waited_s += seconds
        if time.monotonic() - self._nudged > _WAKE_EVERY_S:
            self._nudge()
            self._nudged = time.monotonic()
        if self._waited_s > self._patience_s:
            raise EngineError(
                f"The connector has not acted on the signal {self._signal.id} within {self._patience_s:.0f} s. "
                "Next: see its log; check notification.enabled.channels and signal.data.collection."
            )

    def _take(self, notification: Mapping[str, Any]) -> None:
        """One notification. Those of blocking snapshots carry ids of the connector's own, so only their order identifies them."""
        trouble = self._notices.take(notification)
        if not self._is_sent or self._ended:
            return
        if notification.get("type") == STARTED:
            self._begun = True
        elif self._begun and trouble:
            self.troubles.append(trouble)
            self._refused += refused(notification)
        if self._begun and notification.get("type") in ENDS:
            if self._is_to_be_repeated(notification):
                self._repeat()
                return
            self._ended = True
            if notification["type"] != "COMPLETED":
                what = f"{notification.get('aggregate_type', 'Snapshot')} {notification['type']}"
                self.troubles.append(f"{what}. Next: see the connector's log.")

    def _is_to_be_repeated(self, notification: Mapping[str, Any]) -> bool:
        is_refused_alone = bool(self._refused) and len(self._refused) == len(self.troubles)
        return is_refused_alone and not self._has_repeated and notification.get("type") == "COMPLETED"

    def _repeat(self) -> None:
        """Have the tables requested once more."""
        log.warning("The signal is sent once more. %s", " ".join(self.troubles))
        data = json.loads(self._signal.data or "{}")
        data["data-collections"] = [expression_for(name) for name in self._refused]
        self._signal = replace(self._signal, id=f"{self._signal.id}-again", data=json.dumps(data))
        self._handed.append(self._signal)
        self.troubles, self._refused = [], []
        self._is_sent, self._begun, self._waited_s, self._has_repeated = False, False, 0.0, True

    def committed(self, number: int) -> None:
        """All chunks to this one are in the lake."""
        self._feed.committed(number)

    def close(self) -> None:
        """End the connector."""
        self._feed.close()
