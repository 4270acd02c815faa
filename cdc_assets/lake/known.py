"""Remembers outside of the lake that it was there, so that a lake that is not mounted is no new one.

An empty folder looks the same in both cases: nothing is in it. A run would take a first snapshot into the mount point while the
lake that readers use gets old. So a run that claims a capture's record remembers its address in the state folder. One that finds
no record at a remembered address ends, until a person says that a new lake is to begin (`cdc-assets reset --new-lake`, which makes
the record).

*Crash.* It is remembered after the record was made: a crash in between costs the protection until the next claim, and
refuses nothing.
"""

import hashlib
from datetime import UTC, datetime

from cdc_assets.core.state_folder import forget, recall, remember
from cdc_assets.errors import LakeError
from cdc_assets.lake.location import Location

NEW_LAKE = "cdc-assets reset --new-lake --yes"
"""The command by which a person says that a new lake is to begin."""


def remember_record(address: str, why: str = "") -> None:
    """Remember that a capture's record is there.

    Args:
        address: of the record's Delta table.
        why: what shows that, for people; if empty, that it was seen now.
    """
    if known_record(address) is None:
        why = why or f"seen since {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        remember(_name(address), {"record": address, "why": why})


def known_record(address: str) -> str | None:
    """What shows that a capture's record was there, for people; None if it never was."""
    found = recall(_name(address)) or {}
    return str(found.get("why", "")) if found.get("record") == address else None


def forget_record(address: str) -> None:
    """Let a new lake begin there."""
    forget(_name(address))


def refuse_if_known(location: Location, directory: str, capture: str) -> None:
    """Check that a record that is not there never was; called if it is not.

    Raises:
        LakeError: it was.
    """
    address = location.uri(directory)
    if (why := known_record(address)) is None:
        return
    raise LakeError(
        f"The lake at {location.root} holds nothing of capture {capture}, though its record {directory} was there ({why}): it is not "
        "mounted, or was moved or removed. No table is read again. Next: mount it, or correct lake.path; to begin a new "
        f"lake there with a first snapshot, run `{NEW_LAKE}`."
    )


def _name(address: str) -> str:
    return f"lakes/{hashlib.sha256(address.encode()).hexdigest()[:24]}"
