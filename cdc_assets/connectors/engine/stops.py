"""Streams that are not read on: partitions and files, with the reasons.

They are recorded in the ledger, so that every report of the capture shows them, and not only the run's log. A
stream is recorded until it continues: until a batch moves its offset, or a run has read all streams to their ends without it
being stopped again. What is not known to continue stays recorded, whichever step a run dies at.
"""

from collections.abc import Collection, Mapping
from typing import Any


def stream_of(partition: Mapping[str, Any]) -> str:
    """Name of the stream of an offset."""
    return str(partition["file"]) if "file" in partition else f"{partition.get('topic')}:{partition.get('partition')}"


def still_stopped(recorded: Mapping[str, str], stopped: Mapping[str, str], moved: Collection[str]) -> dict[str, str]:
    """What is to be recorded.

    Args:
        recorded: until now.
        stopped: in this run.
        moved: streams whose offsets were moved by what was committed now.
    """
    return {stream: reason for stream, reason in recorded.items() if stream not in moved} | dict(stopped)
