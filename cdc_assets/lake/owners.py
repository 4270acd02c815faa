"""Whose a topic table is: two captures that write one would put each event into it twice, and nobody would notice.

A table is marked with its capture when it is made, by a property of its own. One of an earlier release has no mark; then the
application ids of its commits tell. A second capture is refused by name before it has written anything.
"""

from typing import Final

from deltalake import DeltaTable

from cdc_assets.errors import LakeError
from cdc_assets.lake.commits import read_commit
from cdc_assets.lake.tables import DeltaTables

OWNER: Final = "cdc_assets.capture"
"""Property of a table: the topic prefix of the capture that writes it."""
_LOOKED_AT: Final = 100
"""Commits that are looked at, the newest first: others than captures commit between theirs."""
_OF_USERS: Final = "dagster:"


def require_own(tables: DeltaTables, directory: str, handle: DeltaTable) -> None:
    """Check that no other capture writes a table.

    Raises:
        LakeError: one does.
    """
    owner = handle.metadata().configuration.get(OWNER) or _by_commits(tables, directory, handle)
    if owner != tables.capture:
        raise LakeError(
            f"The topic table {directory} is written by the capture with topic.prefix {owner}, and {tables.capture} is another "
            "one: each event would be there twice. Next: give one of them a lake.path of its own, or leave the topic out of "
            f"what {tables.capture} reads; if this is the same capture, give it its topic.prefix back."
        )


def _by_commits(tables: DeltaTables, directory: str, handle: DeltaTable) -> str:
    """The capture whose number a table's commits carry; this one if it has committed, or nobody has."""
    if tables.transaction(handle, directory) is not None:
        return tables.capture
    newest = handle.version()
    for version in range(newest, max(-1, newest - _LOOKED_AT), -1):
        commit = read_commit(tables.location, directory, version)
        if commit is None:
            break
        if others := [name for name in commit.transactions if not name.startswith(_OF_USERS)]:
            return others[0].removesuffix(" left out")
    return tables.capture


def refuse_beside(tables: DeltaTables, record: str) -> None:
    """Check that a capture of another kind has not the same topic prefix: both would number their commits alike.

    Args:
        record: directory of the record that it would have.

    Raises:
        LakeError: it is there.
    """
    if tables.open(record) is not None:
        raise LakeError(
            f"The lake at {tables.location.root} holds {record}: another capture has the topic.prefix {tables.capture}. "
            "Next: choose another topic.prefix, or another lake.path."
        )
