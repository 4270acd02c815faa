"""How far the comparison of a table has come: one small file for each table in `<prefix>.__reconciled`.

It is replaced as a whole after each group of key ranges, so a comparison that was killed continues after the last one.
Nothing else depends on it: a file that is lost, or cannot be read, only makes the next comparison start over.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from cdc_assets.core.ports import KeyRange
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location

log = logging.getLogger(__name__)

Texts = tuple[str | None, ...]
"""A key in the server's own texts."""
SHOWN = 20
"""Differences that are kept."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that the server and the mirror do not have alike.

    Args:
        kind: `differs`, `not in the mirror`, `not on the server`, `more than once in the mirror` or `more than once on the server`.
        key: its key, or without one the row.
        server: columns that differ, as the server has them; empty if it lacks the row.
        mirror: likewise as the mirror has them.
    """

    kind: str
    key: Mapping[str, str]
    server: Mapping[str, str]
    mirror: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pass:
    """One comparison of all key ranges of a table.

    Args:
        object_id: distinguishes a table from one that was created again under its name.
        ranges: all of its key ranges, in order.
        done: number of ranges that are compared.
        rows: rows of the server so far.
        mirrored: rows of the mirror so far.
        differing: rows that differ so far.
        absent: those of them that the server lacks.
        removed: those of these that were removed from the mirror.
        asked: those of them for which READ events were requested.
        waiting: those of them for which they are still to be requested.
        keys: keys of these in the server's own texts.
        spans: key ranges of which too many rows differ to name them.
        first: the first of them.
        lsn: LSN at which the newest range was compared.
        began, at: when it began, and when the newest range was compared.
        doubled: keys that more than one row of the mirror has.
        before: rows that were known to differ when it began, and that nobody had repaired.
        made: when the mirror was made that is compared: one that was rebuilt since, or is in a new lake, is another one.
        shared: keys that more than one row of the server has.
    """

    object_id: int
    ranges: tuple[KeyRange, ...]
    done: int = 0
    rows: int = 0
    mirrored: int = 0
    differing: int = 0
    absent: int = 0
    asked: int = 0
    waiting: int = 0
    keys: tuple[Texts, ...] = ()
    spans: tuple[KeyRange, ...] = ()
    first: tuple[Difference, ...] = ()
    lsn: str = ""
    began: str = ""
    at: str = ""
    removed: int = 0
    doubled: int = 0
    before: int = 0
    made: str = ""
    shared: int = 0

    @property
    def left(self) -> int:
        """Rows that are known to differ, at least, and are neither to be read again nor removed; those of the pass before count until all
        ranges are compared again."""
        own = self.differing - self.asked - self.removed
        return own if self.ended else max(own, self.before)

    @property
    def ended(self) -> bool:
        """Whether all ranges are compared."""
        return self.done >= len(self.ranges)

    @property
    def summary(self) -> str:
        """The result in a sentence or two."""
        where = f"{self.done:,} of {len(self.ranges):,} key ranges" if not self.ended else "all key ranges"
        if not self.differing:
            text = f"The mirror equals the server at {self.lsn}: {where}, {self.rows:,} rows."
            again = f" {self.left:,} rows differed in the comparison before, and not all key ranges are compared again."
            return text + again if self.left else text
        text = f"{self.differing:,} of {self.rows:,} rows differ at {self.lsn} ({where})."
        if self.asked:
            text += f" {self.asked:,} of them will be read again by the streaming run."
        if self.waiting:
            text += f" {self.waiting:,} will be read again, but are not requested yet."
        if self.absent:
            text += f" {self.absent:,} are missing on the server; no READ event can remove them."
        if self.removed:
            text += f" {self.removed:,} of them are removed from the mirror; the topic has them still."
        if self.doubled:
            text += f" {self.doubled:,} are in the mirror more than once: rebuild it (cdc-assets mirror --rebuild)."
        if self.shared:
            text += (
                f" {self.shared:,} keys have more than one row on the server, and a mirror has one row for each: name further columns in "
                "message.key.columns, so that no two rows agree in them, or take the entry of the table out, so that it has no key; then "
                "read the table again (cdc-assets capture --table)."
            )
        if self.removed < self.absent:
            text += (
                " --repair removes them from the mirror, up to a thousand in all, and none of a table without a key that has large "
                "columns; others go when the table is "
                "read again after a gap: disable and enable its change data capture, then take its snapshot."
            )
        return text

    def and_also(self, made: "Pass") -> "Pass":
        """The pass after further ranges."""
        return replace(
            made,
            ranges=self.ranges,
            began=self.began,
            before=self.before,
            made=self.made,
            done=self.done + made.done,
            rows=self.rows + made.rows,
            mirrored=self.mirrored + made.mirrored,
            differing=self.differing + made.differing,
            absent=self.absent + made.absent,
            removed=self.removed + made.removed,
            doubled=self.doubled + made.doubled,
            shared=self.shared + made.shared,
            asked=self.asked,
            waiting=self.waiting + made.waiting,
            keys=(*self.keys, *made.keys),
            spans=(*self.spans, *made.spans),
            first=(*self.first, *made.first)[:SHOWN],
        )


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The newest comparison of a table, and the newest that is complete."""

    newest: Pass | None = None
    complete: Pass | None = None


class Record:
    """Reads and writes how far comparisons have come; every method may raise LakeError.

    Args:
        prefix: topic prefix of the capture.
    """

    def __init__(self, location: Location, prefix: str) -> None:
        self._folder = Folder(location, f"{prefix}.__reconciled")

    def read(self, topic: str) -> Comparisons:
        """What is known of a table."""
        name = f"{topic}.json"
        if name not in self._folder.names(name):
            return Comparisons()
        content = self._folder.read(name)
        try:
            data = json.loads(content)
            return Comparisons(_pass(data["newest"]), _pass(data["complete"]))
        except (ValueError, TypeError, LookupError, AttributeError) as error:  # damaged, or of another version
            log.warning("How far the comparison of %s has come cannot be read (%s), so it starts over.", topic, error)
            return Comparisons()

    def write(self, topic: str, known: Comparisons) -> None:
        """Replace what is known of a table."""
        self._folder.write(f"{topic}.json", json.dumps(asdict(known)).encode())


def _pass(data: dict[str, Any] | None) -> Pass | None:
    if data is None:
        return None
    ranges, spans = (tuple(KeyRange(**entry) for entry in data.pop(name)) for name in ("ranges", "spans"))
    keys = tuple(tuple(key) for key in data.pop("keys"))
    first = tuple(Difference(**entry) for entry in data.pop("first"))
    return Pass(**data, ranges=ranges, spans=spans, keys=keys, first=first)
