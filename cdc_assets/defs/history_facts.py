"""What the page of the schema history says: how many structures there are, and the newest changes."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from cdc_assets.core.identifiers import TableId
from cdc_assets.defs.markdown import markdown_table
from cdc_assets.history.drift import changes_between
from cdc_assets.history.records import HistoryEntry

_NEWEST, _MAX_CHARACTERS = 20, 120


def history_facts(entries: Sequence[HistoryEntry]) -> dict[str, Any]:
    """Metadata of the schema history's materialization.

    Args:
        entries: all of them, oldest first.
    """
    if not entries:
        return {}
    newest = {entry.table: entry for entry in entries}
    described = list(_described(entries))[-_NEWEST:]
    last, text = described[-1]
    rows = [(f"{entry.at:%Y-%m-%d %H:%M:%S}", str(entry.table), entry.kind, str(entry.lsn), text)
            for entry, text in reversed(described)]  # fmt: skip
    return {
        "structures": len(entries),
        "tables": sum(entry.kind != "DROP" for entry in newest.values()),
        "last_ddl": f"{last.kind} of {last.table} from {last.lsn}: {text}",
        "last_ddl_at": dg.MetadataValue.timestamp(last.at),
        "newest_structures": dg.MetadataValue.md(
            markdown_table(("recorded (UTC)", "table", "change", "valid from", "what"), rows)
        ),
    }


def _described(entries: Sequence[HistoryEntry]) -> Iterator[tuple[HistoryEntry, str]]:
    """Each entry, and what it changed."""
    known: dict[TableId, HistoryEntry] = {}
    for entry in entries:
        before = known.get(entry.table)
        text = _what(entry, before if before is not None and before.kind != "DROP" else None)
        known[entry.table] = entry
        yield entry, text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"


def _what(entry: HistoryEntry, before: HistoryEntry | None) -> str:
    if entry.kind == "DROP":
        return "no longer captured"
    if before is None:
        return f"{len(entry.columns())} columns, key: {', '.join(entry.schema.key) or 'none'}"
    return ", ".join(map(str, changes_between(before, entry))) or "as before"
