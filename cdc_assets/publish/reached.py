"""The numbers that a topic's tables have reached, for repeated reports.

After a compaction a table has commits later than the marked one, until its next events come. A report then opens its log, to
see whether these have events; so a lake of compacted tables cost each report all of its logs. What was read is right while the table
has the same version: its newest commit is still there, of the same time, and has no successor. That takes two questions for single files.
"""

from typing import Any, Final

from cdc_assets.lake.commits import has_commit, read_commit
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables, generation

_KNOWN: Final[dict[str, tuple[int, Any, int]]] = {}
"""By the address of a table: a version, the time of its commit, and the number that it has reached."""


def reached(tables: TopicTables, topic: str) -> int:
    """The greatest number of a commit to a topic's tables; -1 if there is none.

    Raises:
        LakeError: a table cannot be read.
    """
    found, at = -1, 1
    while (number := _of_table(tables, generation(topic, at))) is not None:
        found, at = max(found, number), at + 1
    return found


def _of_table(tables: TopicTables, directory: str) -> int | None:
    """The number that a table has reached; None if there is no table."""
    location = tables.location
    address = location.uri(directory)
    if (known := _KNOWN.get(address)) is not None:
        version, time, reached_then = known
        if _time(location, directory, version) == time and not has_commit(location, directory, version + 1):
            return reached_then
    if (handle := tables.open(directory)) is None:
        _KNOWN.pop(address, None)
        return None
    found = tables.transaction(handle, directory)
    number = -1 if found is None else found
    if (time := _time(location, directory, handle.version())) is not None:
        _KNOWN[address] = handle.version(), time, number
    return number


def _time(location: Location, directory: str, version: int) -> Any:
    """What a commit says of its time; None if it says nothing, or is not there."""
    commit = read_commit(location, directory, version)
    return None if commit is None else commit.about.get("timestamp")
