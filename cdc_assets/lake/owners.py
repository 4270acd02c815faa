"""Whose a topic table is: two captures that write one would put each event into it twice, and nobody would notice.

A table is marked with its capture when it is made, by a property of its own; one without a mark was made by another program, and is
nobody's. A second capture is refused by name before it has written anything.
"""

from collections.abc import Sequence
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


_RECORDS: Final = (".__windows", ".__batches")
"""Ends of the names of the records of captures, after their topic prefixes."""


def tables_of(tables: DeltaTables, others: Sequence[DeltaTables] = ()) -> tuple[list[str], list[str]]:
    """Folders of the lake that are tables with commits of a capture; and tables that cannot be read, so that they may be, too.

    A table that cannot be read is another capture's if its name begins as those of another one whose record is in this lake.

    Args:
        others: Delta tables that commit under other names.
    """
    names = tables.location.directories()
    known = {f"{name.removesuffix(end)}." for name in names for end in _RECORDS if name.endswith(end)}
    own, unread = f"{tables.capture}.", list[str]()
    held = list[str]()
    for name in names:
        found = [one.holds(name) for one in (tables, *others)]
        if True in found:
            held.append(name)
        elif None in found and max((one for one in {*known, own} if name.startswith(one)), key=len, default=own) == own:
            unread.append(name)
    return held, unread


def refuse_unread(tables: DeltaTables, unread: Sequence[str]) -> None:
    """Check that none of the tables that cannot be read may be the capture's: its topics and their mirrors have names that begin with
    the topic prefix, and a lake may have tables of other programs, which nothing here can read.

    Raises:
        LakeError: one may be.
    """
    if found := [name for name in unread if name.startswith(tables.capture)]:
        raise LakeError(
            f"{', '.join(found[:5])} in {tables.location.root} cannot be read, so it is not known whether they hold events of "
            f"capture {tables.capture}. Next: see to the rights of these folders, restore them from a copy, or move them out of the "
            "lake."
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
