"""Statements of signals, incremental snapshots and comparisons, as the server in memory answers them."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets_tests.unit.streaming.simulation import Change, Row

if TYPE_CHECKING:
    from cdc_assets_tests.simulation.server import LaggingServer

_LOGGED = ("signals", "changed rows")
_ROWS = ("chunk", "chunk end", "chunk maximum", "chunk to compare")


def kind_of(statement: str) -> str:
    """What a statement says that it reads."""
    return statement.removeprefix("/* cdc-assets: ").partition(" */")[0]


def answer(server: "LaggingServer", statement: str, parameters: Sequence[object]) -> pa.Table | None:
    """Rows of such a statement; None if it is another one."""
    kind = kind_of(statement)
    if kind == "commit":
        return _of_commit(server, statement, parameters)
    if kind in _LOGGED:
        return _logged(server, statement, parameters)
    if kind not in _ROWS:
        return None
    table = _table_of(statement)
    found = _chosen(server.rows[table].values(), statement, parameters)
    if kind in ("chunk", "chunk to compare"):
        return _columns(server, statement, found, server.schemas[table])
    name = re.findall(r"\[[ts]\]\.\[(\w+)\]", statement)[0]  # key orders have one column here, a number
    keys = sorted(int(str(row[name])) for row in found)
    place = int(re.findall(r"OFFSET (\d+) ROWS", statement)[0]) if kind == "chunk end" else len(keys) - 1
    return pa.table({"key": pa.array([str(keys[place])] if 0 <= place < len(keys) else [], pa.string())})


def _columns(
    server: "LaggingServer", statement: str, rows: Iterable[Mapping[str, object]], schema: TableSchema
) -> pa.Table:
    """The columns that a statement names, of rows; those with another name than the table's are texts."""
    select = statement.partition(" FROM ")[0]
    sources = {
        alias: name
        for name, alias in re.findall(r"\[t\]\.\[(\w+)\](?:(?!\[t\]| AS ).)*(?: AS |\) AS )\[(\w+)\]", select)
    }
    found, columns = list(rows), dict[str, pa.Array]()
    for alias in re.findall(r" AS \[([^\]]+)\]", select):
        name = sources.get(alias, alias)
        values = [row.get(name) for row in found]
        if name == alias:
            columns[alias] = pa.array(values, server.kind_of(schema, name))
        else:
            columns[alias] = pa.array([None if value is None else str(value) for value in values], pa.string())
    return pa.table(columns)


def _logged(server: "LaggingServer", statement: str, parameters: Sequence[object]) -> pa.Table:
    """Change rows within (after, until], in their order."""
    place = re.search(r"cdc\.\[([^\]]+)_CT\]", statement)
    assert place
    after, until = parameters
    left_out = re.search(r"\[__\$operation\] NOT IN \(([\d, ]+)\)", statement)
    skipped = {int(code) for code in left_out[1].split(",")} if left_out else set()
    if "cdc-assets: signals" in statement:
        skipped = {3, 4}
    changes = [c for c in server.changes_in(place[1]) if after < c.lsn.raw <= until and c.operation not in skipped]  # type: ignore[operator]
    changes.sort(key=lambda c: (c.lsn, c.command, c.seqval, c.operation))
    return _with_operations(server, statement, changes, server.stored_of(place[1]))


def _of_commit(server: "LaggingServer", statement: str, parameters: Sequence[object]) -> pa.Table:
    """Command, change LSN and operation of each change row of a commit."""
    place = re.search(r"cdc\.\[([^\]]+)_CT\]", statement)
    assert place
    changes = [c for c in server.changes_in(place[1]) if c.lsn.raw == parameters[0]]
    changes.sort(key=lambda c: (c.command, c.seqval, c.operation))
    return pa.table(
        {
            "command": pa.array([c.command for c in changes], pa.int32()),
            "change": pa.array([c.seqval.raw for c in changes], pa.binary()),
            "operation": pa.array([c.operation for c in changes], pa.int32()),
        }
    )


def _with_operations(
    server: "LaggingServer", statement: str, changes: Sequence[Change], schema: TableSchema
) -> pa.Table:
    first = {"__$operation": pa.array([c.operation for c in changes], pa.int32())}
    if "[__$start_lsn], " in statement.partition(" FROM ")[0]:
        first = {"__$start_lsn": pa.array([c.lsn.raw for c in changes], pa.binary())} | first
    rows = _columns(server, statement, [change.row for change in changes], schema)
    return pa.table(first | dict(zip(rows.column_names, rows.columns, strict=True)))


def _table_of(statement: str) -> TableId:
    place = re.search(r"FROM \[([^\]]+)\]\.\[([^\]]+)\]\.\[([^\]]+)\] AS \[t\]", statement)
    assert place
    return TableId(*place.groups())


def _chosen(rows: Iterable[Row], statement: str, parameters: Sequence[object]) -> list[Row]:
    """Rows that meet a statement's condition."""
    condition = re.search(r" WHERE (.*?)(?: ORDER BY | OPTION |$)", statement)
    return list(filter(_predicate(condition[1], parameters), rows)) if condition else list(rows)


def _predicate(text: str, parameters: Sequence[object]) -> Callable[[Row], bool]:
    """What a condition says of a row; it is made of comparisons of columns with converted texts, and with numbers."""
    values = iter(parameters)
    text = re.sub(r"\?", lambda _: "N'{}'".format(str(next(values)).replace("'", "''")), text)
    text = re.sub(r"CONVERT\(int, N'(\d+)'\)", r"\1", text)
    text = re.sub(
        r"CONVERT\(\w+(?:\([^)]*\))?, N'((?:[^']|'')*)'(?: COLLATE \w+)?(?:, \d+)?\)",
        lambda found: repr(found[1]),
        text,
    )
    text = text.replace("[t].", "").replace(" IS NOT NULL", " is not None").replace(" IS NULL", " is None")
    text = re.sub(r"\[(\w+)\]", r"row['\1']", text)
    text = re.sub(r"(?<!['\w])id(?!['\w])", "row['id']", text)
    for word, own in ((" = ", " == "), (" AND ", " and "), (" OR ", " or "), ("NOT ", "not ")):
        text = text.replace(word, own)
    condition = compile(text, "condition", "eval")
    return lambda row: bool(eval(condition, {"row": row}))  # noqa: S307 - a statement of the product
