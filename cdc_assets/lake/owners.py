"""Whose a topic table is: two captures that write one would put each event into it twice, and nobody would notice.

A table is marked with its capture when it is made, by a property of its own; one without a mark was made by another program, and is
nobody's. A second capture is refused by name before it has written anything.
"""

from typing import Final

from deltalake import DeltaTable

from cdc_assets.errors import LakeError
from cdc_assets.lake.tables import DeltaTables

OWNER: Final = "cdc_assets.shared"
"""Property of a table: the topic prefix of the capture that writes it."""


def require_own(tables: DeltaTables, directory: str, handle: DeltaTable) -> None:
    """Check that no other capture writes a table.

    Raises:
        LakeError: one does.
    """
    owner = handle.metadata().configuration.get(OWNER, tables.capture)
    if owner != tables.capture:
        raise LakeError(
            f"The topic table {directory} belongs to the capture with topic.prefix {owner}; {tables.capture} would write each event a "
            "second time. Next: give one of them its own lake.path, or leave the topic out of "
            f"what {tables.capture} reads; if this is the same capture, give it its topic.prefix back."
        )


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
