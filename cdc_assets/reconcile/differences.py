"""Rows that differ: those of all leaves, those that remain when nothing is in flight, and how they are shown."""

import bisect
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner
from cdc_assets.envelope.rules import MASKED
from cdc_assets.lake.keys import bound_key
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.mirror.shape import TO_LSN
from cdc_assets.reconcile.compare import COUNT, Found, Row, unpack, was_so, was_so_often, were_so_many
from cdc_assets.reconcile.progress import SHOWN, Difference, Texts
from cdc_assets.reconcile.subject import Subject
from cdc_assets.reconcile.tasks import CODE, TEXT, VersionsTask, versions

_LONGEST = 64
"""Characters or bytes of a value that are shown; of a larger one its digest."""

Side = Mapping[object, Row]


@dataclass(frozen=True)
class Candidates:
    """Rows that the server and the mirror do not have alike.

    Args:
        rows: rows of the server that were compared.
        server: by what identifies rows; likewise `mirror`.
        places: key of each of them in the mirror's order.
        more: number of rows that differ and are only counted.
        more_absent: number of those of them that only the mirror has.
    """

    subject: Subject
    rows: int = 0
    mirrored: int = 0
    more: int = 0
    more_absent: int = 0
    server: Side = field(default_factory=dict)
    mirror: Side = field(default_factory=dict)
    places: Mapping[object, object] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self.server or self.mirror)

    @property
    def codes(self) -> list[object]:
        """What distinguishes them, those of the server first."""
        return list(dict.fromkeys([*self.server, *self.mirror]))

    @property
    def is_open(self) -> bool:
        """Whether rows that are only counted may differ, of those that the server has or of the others, but none that is listed of these."""
        gone = self.mirror.keys() - self.server.keys()
        return (self.more > self.more_absent and not self.server) or (self.more_absent > 0 and not gone)

    @property
    def doubled(self) -> set[object]:
        """Keys that more than one row of the mirror has."""
        if not self.subject.compared.shape.keyed:
            return set()
        return {code for code, row in self.mirror.items() if _count(row) > 1}

    @property
    def shared(self) -> set[object]:
        """Keys that more than one row of the server has: a mirror holds one of them, whichever was read or changed last."""
        if not self.subject.compared.shape.keyed:
            return set()
        return {code for code, row in self.server.items() if _count(row) > 1}

    @property
    def _read_again(self) -> list[Row]:
        others = self.doubled | self.shared
        return [row for code, row in self.server.items() if code not in others]

    @property
    def _gone(self) -> list[Row]:
        others = self.server.keys() | self.doubled
        return [row for code, row in self.mirror.items() if code not in others]

    @property
    def present(self) -> int:
        """Number of rows that a READ mends: those of the server. Without a key READs show how many copies there are."""
        return len(self._read_again) + self.more - self.more_absent

    @property
    def absent(self) -> int:
        """Number of those that only the mirror has."""
        return len(self._gone) + self.more_absent

    @property
    def absent_keys(self) -> pa.Table:
        """Keys of the rows that only the mirror has, in its types.

        Without a key that are all values that identify rows; if there are others too, some copies may be on the server.
        """
        shape = self.subject.compared.shape
        types = {column.name: column.type for column in shape.columns}
        schema = pa.schema([(part.name, types[part.name]) for part in shape.key])
        rows = self._gone if shape.keyed or not shape.large else []
        return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)

    @property
    def count(self) -> int:
        """Number of rows that differ."""
        return len(self.codes) + self.more

    @property
    def texts(self) -> list[Texts]:
        """Keys of rows that a READ mends, in the server's own texts."""
        names = [TEXT.format(number) for number in range(self.subject.compared.texts)]
        return [tuple(None if row[name] is None else str(row[name]) for name in names) for row in self._read_again]

    def only(self, codes: set[object]) -> "Candidates":
        """Those among them with these codes."""
        server = {code: row for code, row in self.server.items() if code in codes}
        mirror = {code: row for code, row in self.mirror.items() if code in codes}
        return replace(self, server=server, mirror=mirror)

    def also_in(self, other: "Candidates") -> "Candidates":
        """Those that were found before too."""
        return self.only(set(self.codes) & set(other.codes))

    def shown(self) -> Iterator[Difference]:
        """The first of them."""
        about, doubled, shared = self.subject.compared, self.doubled, self.shared
        keys = [part.name for part in about.shape.key] if about.shape.keyed else list(about.names)
        for code in self.codes[:SHOWN]:
            here, there = self.server.get(code), self.mirror.get(code)
            some = here or there or {}
            key = self._shown(some, keys)
            names = [name for name in about.names if name not in keys]
            if here is not None and there is not None:
                names = [name for name in about.names if here[name] != there[name]]
            counts = {"rows": str(_count(here))}, {"rows": str(_count(there))}
            if code in shared and code not in doubled:
                yield Difference("more than once on the server", key, *counts)
                continue
            if not about.shape.keyed:
                kind = "not in the mirror" if _count(here) > _count(there) else "not on the server"
                yield Difference(kind, key, *counts)
                continue
            kind = "not in the mirror" if there is None else "not on the server" if here is None else "differs"
            kind = "more than once in the mirror" if code in doubled else kind
            yield Difference(kind, key, self._shown(here, names), self._shown(there, names))

    def _shown(self, row: Row | None, names: Sequence[str]) -> dict[str, str]:
        hidden = self.subject.hidden
        return {} if row is None else {name: MASKED if name in hidden else show(row[name]) for name in names}


def _count(row: Row | None) -> int:
    return 0 if row is None else int(str(row[COUNT]))


def show(value: object) -> str:
    """A value as text; a large one as its digest."""
    if isinstance(value, bytes):
        text, data = "0x" + value.hex().upper(), value
    else:
        text = "NULL" if value is None else str(value)
        data = text.encode()
    if len(data) <= _LONGEST:
        return text
    return f"{len(value) if isinstance(value, (bytes, str)) else len(text)} long, SHA-256 {hashlib.sha256(data).hexdigest()[:16]}"


def candidates_of(subject: Subject, results: Sequence[Found]) -> Candidates:
    """All rows that differ in some leaves."""
    about = subject.compared
    places: dict[object, object] = {}
    server: dict[object, Row] = {}
    mirror: dict[object, Row] = {}
    for found in results:
        for data, side in ((found.server, server), (found.mirror, mirror)):
            rows = unpack(data)
            if rows.num_rows:
                codes = about.codes(rows).to_pylist()
                side.update(zip(codes, rows.to_pylist(), strict=True))
                places.update(zip(codes, about.shape.keys(rows).to_pylist(), strict=True))
    totals = (sum(found.rows for found in results), sum(found.mirrored for found in results))
    more = (sum(found.more for found in results), sum(found.more_absent for found in results))
    return Candidates(subject, *totals, *more, server, mirror, places)


def settled(found: Candidates, since: str, tables: MirrorTables, runner: TaskRunner) -> Candidates:
    """Candidates that the mirror has had at no LSN since; it must have passed the read.

    Args:
        since: LSN that the mirror had reached before the read.
    """
    known = defaultdict[object, list[Row]](list)
    for data in runner.run(
        versions, list(_tasks(found, since, tables)), Job("reconcile", f"settled: {found.subject.topic}")
    ):
        for row in unpack(data).to_pylist():
            known[row[CODE]].append(row)
    about, read_twice = found.subject.compared, found.shared
    shared = {code for code in read_twice if not were_so_many(_count(found.server[code]), known[code])}
    sure = found.doubled | shared

    def is_in_flight(code: object) -> bool:
        row = found.server.get(code)
        if code in sure:
            return False
        if about.shape.keyed:
            return was_so(row, known[code], since, about.names)
        return was_so_often(_count(row), known[code], since)

    server = {code: {**row, COUNT: 1} if code in read_twice - shared else row for code, row in found.server.items()}
    return replace(found, server=server).only({code for code in found.codes if not is_in_flight(code)})


def _tasks(found: Candidates, since: str, tables: MirrorTables) -> Iterator[VersionsTask]:
    """A task for each file that may hold versions of the candidates."""
    about = found.subject.compared
    leaves = found.subject.leaves(tables)
    bounds: list[Any] = [bound_key(leaf.bound, about.shape.key_type) for leaf in leaves[1:]]
    wanted = defaultdict[int, list[object]](list)
    for code in found.codes:
        wanted[bisect.bisect_right(bounds, found.places[code])].append(code)
    for at, codes in sorted(wanted.items()):
        for path in leaves[at].paths:
            yield VersionsTask(about, path, False, tuple(codes), since)
    tables.tables.forget(about.history)
    handle = tables.tables.open(about.history)
    if handle is None:
        return
    for row in pa.table(handle.get_add_actions(flatten=True)).to_pylist():
        newest = row.get(f"max.{TO_LSN}")
        if newest is None or newest > since:
            yield VersionsTask(about, row["path"], True, tuple(found.codes), since)
