"""Named steps at which tests crash the process, and the hook that does it.

Tests set `CDC_CRASH_AT=<step>` or `<step>:<n>` (the n-th time, from 1) in the environment of a real process, which then
kills itself: no handler runs, no buffer is flushed, as in a power cut. `@<file>` names a file that holds the step; it
is removed first, so that only one of many processes with the same environment dies. Without the variable a step costs
one dictionary look-up.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

STEPS: Final[dict[str, str]] = {
    "window-planned": "bounds are fixed in the manifest; nothing was read",
    "history-recorded": "schema records of the window are committed; their public events are not",
    "history-written": "schema records of the window are committed; no data was read",
    "files-written": "all slices were read and written; no table was committed",
    "table-committed": "one topic table was committed (counts once for each table)",
    "transactions-committed": "BEGIN and END events of the window are committed, with all its tables",
    "window-complete": "the window is complete in the manifest",
    "snapshot-planned": "ranges and low watermark of a snapshot are fixed; nothing was read",
    "round-planned": "a round of slices is planned",
    "moment-fixed": "tables without a key are locked, and all readers that meet see them as they are; nothing of them was read",
    "round-written": "a round's slices were read and written; no table was committed",
    "round-complete": "a round is complete in the manifest; slices may remain",
    "snapshot-complete": "the snapshot is complete in the manifest",
    "signals-recorded": "the queue of signals, or an incremental round's files, are in the manifest",
    "marker-written": "an open or close marker is in the signal table",
    "chunk-read": "a round of an incremental snapshot was read; nothing of it is recorded",
    "reads-committed": "an incremental round's files are in the topic table; the queue is not updated",
    "tables-marked": "states of tables (gap, failed, started) are recorded",
    "positions-advanced": "idle tables' positions are recorded",
    "readings-closed": "it is recorded up to where in the log rows of snapshots have changes",
    "adoption-planned": "adopted tables are recorded as not ready; their structures are not",
    "adoption-complete": "adopted tables are recorded with their positions and structures",
    "batch-planned": "an engine's batch is recorded with its files and offsets; no table was committed",
    "batch-complete": "an engine's batch is complete in its record",
    "mirror-planned": "steps of mirrors are recorded with their bounds; nothing was read",
    "mirror-folded": "leaves and versions of mirrors are written; no table was committed",
    "mirror-history-committed": "versions that ended are in one mirror's history; its rows are not committed",
    "mirror-committed": "one mirror's rows are committed (counts once for each table)",
    "mirror-complete": "steps of mirrors are recorded as complete",
    "absence-recorded": "rows that the server lacks are recorded for one mirror; it has them still",
    "retention-recorded": "what topics hold from now on is in the manifest; no reader is informed, nothing is dropped",
    "retention-announced": "readers of a topic are informed; nothing of it is dropped (counts once for each topic)",
    "compaction-written": "what stays of one topic is written to files that no commit names yet (counts once for each topic)",
    "topic-compacted": "one topic table holds only what stays (counts once for each table)",
    "compaction-complete": "a topic is recorded as compacted (counts once for each topic)",
    "topic-dropped": "old files of one topic table are dropped (counts once for each table)",
    "publish-begun": "the first event of a transaction was handed to the producer",
    "publish-sent": "all events of a transaction are with the producer; neither they nor the marker are committed",
    "publish-complete": "a transaction with its marker is committed at the broker",
    "files-joined": "small files of tables are joined in others that no commit names",
    "table-moved": "a reset has moved a table of the capture away, and not all of them yet",
    "replacement-checked": "a commit that removes files has found them all in the newest version; it is not made",
    "files-replaced": "a commit that removes files is made",
    "checkpoint-begun": "so many rows of a record are committed that their fold is due; nothing of it is written",
    "checkpoint-prepared": "the fold of a record's rows is in a file that no commit names",
    "checkpoint-written": "a record's rows were replaced by one row of state",
}
"""Every step by name, with the state that holds when it is reached."""

VARIABLE: Final = "CDC_CRASH_AT"

_counts: Counter[str] = Counter()
_listeners: list[Callable[[str], None]] = []


def step(name: str) -> None:
    """Report that a step was reached; may kill the process, see the module's head."""
    assert name in STEPS, f"{name} is not listed in STEPS"  # noqa: S101 - a programming error
    for listener in _listeners:
        listener(name)
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    fuse = Path(wanted[1:]) if wanted.startswith("@") else None
    if fuse is not None:
        wanted = fuse.read_text().strip() if fuse.is_file() else ""
    target, _, number = wanted.partition(":")
    if target == name:
        _counts[name] += 1
        if _counts[name] == int(number or "1"):
            if fuse is not None:
                fuse.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


class listening:  # noqa: N801 - used like a function
    """Context manager that calls `listener` at each step; in-process tests raise from it to simulate a crash."""

    def __init__(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def __enter__(self) -> None:
        _listeners.append(self._listener)

    def __exit__(self, *_: object) -> None:
        _listeners.remove(self._listener)
