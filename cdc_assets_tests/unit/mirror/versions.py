"""What is true of the versions of any mirror."""

from typing import Any


def check_versions(versions: list[dict[str, Any]], said: str) -> None:
    """Intervals of a key are in order and do not overlap."""
    ends: dict[int, str] = {}
    for row in sorted(versions, key=lambda row: (row["id"], row["_valid_from_lsn"])):
        assert row["_valid_to_lsn"] is None or row["_valid_from_lsn"] < row["_valid_to_lsn"], said
        assert ends.get(row["id"], "") <= row["_valid_from_lsn"], f"{row}\n{said}"
        ends[row["id"]] = row["_valid_to_lsn"] or "~"
