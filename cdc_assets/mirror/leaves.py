"""The files of `current`: leaves with disjoint key ranges.

A leaf holds all rows whose key is not below its bound and below the bound of the next one. The bound is part of the
file's name, in hexadecimal digits, so the ranges are in the Delta log and nowhere else; the first leaf's bound is empty.
Rows lie in the order of the key. A leaf is divided where it has grown too large, and joined with the next one where both
have become small.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np
import pyarrow as pa
from deltalake.transaction import AddAction

from cdc_assets.lake.keys import bound_bytes

LEAF_BYTES = 32 * 1024 * 1024
"""Bytes of a leaf file as it is cut."""
_LARGE, _SMALL = 2.0, 0.25
"""Times `LEAF_BYTES` at which a leaf is divided, and below which it is joined with a small neighbour."""
_NAME = re.compile(r"leaf-([0-9a-f]*)-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A file of `current`, or several that are rewritten together.

    Args:
        paths: below the table's directory; empty for the first leaf of an empty table.
        bound: where its keys begin.
    """

    paths: tuple[str, ...]
    bound: bytes
    size: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class NewFile:
    """A written file of a mirror, with what a commit needs.

    Args:
        statistics: least and greatest values by column, as Delta's log has them.
    """

    path: str
    size: int
    rows: int
    written_ms: int
    statistics: Mapping[str, tuple[object, object]] = field(default_factory=dict)

    def action(self, *, is_new: bool = True) -> AddAction:
        """The `add` action of the Delta log.

        Args:
            is_new: whether it holds rows that the table did not have before.
        """
        stats: dict[str, object] = {"numRecords": self.rows}
        if self.statistics:
            stats["minValues"] = {name: least for name, (least, _) in self.statistics.items()}
            stats["maxValues"] = {name: greatest for name, (_, greatest) in self.statistics.items()}
        return AddAction(self.path, self.size, {}, self.written_ms, is_new, json.dumps(stats))


def leaf_of(path: str, size: int, rows: int) -> Leaf | None:
    """The leaf that a file is; None if its name is not that of one."""
    match = _NAME.fullmatch(path)
    return None if match is None else Leaf((path,), bytes.fromhex(match[1]), size, rows)


def groups(leaves: Sequence[Leaf], touched: Sequence[int]) -> Iterator[tuple[Leaf, list[int]]]:
    """What is rewritten together: touched leaves, and small neighbours of small ones.

    Args:
        leaves: in the order of their bounds.
        touched: indexes of those that events are about.

    Yields:
        A leaf of all files of the group, and the indexes of the leaves in it.
    """
    wanted = set(touched)
    small = [bool(leaf.paths) and leaf.size < _SMALL * LEAF_BYTES for leaf in leaves]  # new ones are planned apart
    at = 0
    while at < len(leaves):
        chosen, size = [at], leaves[at].size
        while (
            (following := chosen[-1] + 1) < len(leaves)
            and small[following]
            and small[chosen[-1]]
            and (following in wanted or wanted & set(chosen))
            and size + leaves[following].size <= LEAF_BYTES
        ):
            chosen.append(following)
            size += leaves[following].size
        if wanted & set(chosen):
            paths = tuple(path for index in chosen for path in leaves[index].paths)
            bound = leaves[at].bound if at else b""  # the first leaf takes every lower key, whatever its name says
            yield Leaf(paths, bound, size, sum(leaves[index].rows for index in chosen)), chosen
        at = chosen[-1] + 1


def cut(keys: pa.Array, size: int) -> list[int]:
    """Where sorted rows are divided into leaves: first rows of the parts, and the end.

    Args:
        size: estimated bytes of all rows.
    """
    rows = len(keys)
    parts = max(1, round(size / LEAF_BYTES)) if size > _LARGE * LEAF_BYTES else 1
    places = [0]
    for at in (int(place) for place in np.linspace(0, rows, parts + 1)[1:-1]):
        while 0 < at < rows and bound_bytes(keys[at].as_py()) == bound_bytes(keys[at - 1].as_py()):
            at += 1
        if places[-1] < at < rows:
            places.append(at)
    return [*places, rows]


def new_attempt() -> str:
    """What the names of all files have that one try to make a step writes, and no others."""
    return uuid4().hex[:16]


def new_name(bound: bytes, attempt: str) -> str:
    """Name of a leaf file that nobody else uses."""
    return f"leaf-{bound.hex()}-{unique(attempt)}.parquet"


def unique(attempt: str) -> str:
    """Digits that no other file of the attempt has."""
    return attempt + uuid4().hex[:16]
