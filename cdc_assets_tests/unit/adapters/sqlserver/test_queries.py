"""T-SQL texts: each names us, quotes every identifier and leaves values to parameters."""

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from cdc_assets.adapters.sqlserver import change_queries, queries, table_queries
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.core import ports

MODULES = (queries, change_queries, table_queries)
CONSTANTS = {
    name: text
    for module in MODULES
    for name, text in vars(module).items()
    if name.isupper() and isinstance(text, str) and name[0] != "_" and name != "TAG"
}
ODD = "d]b"
BUILT = {
    "columns": queries.columns(ODD, 2),
    "columns by number": queries.columns(ODD, 2, by_number=True),
    "keys": queries.keys(ODD, 2),
    "commit_times": queries.commit_times(ODD, 3),
    "times_before": queries.times_before(ODD, 3),
    "probes": change_queries.probes(ODD, ["a]b", "c"]),
    "rows_per_commit": change_queries.rows_per_commit(ODD, ["a]b", "c"]),
    "rows_in_commit": change_queries.rows_in_commit(ODD, ["a]b", "c"]),
    "rows_behind": change_queries.rows_behind(ODD, "a]b"),
    "position_in_commit": change_queries.position_in_commit(ODD, "a]b", ""),
    "row_counts": queries.row_counts(ODD, 2),
    "extremes": table_queries.extremes([("[t]", "[c]"), ("[u]", "[d]")]),
    "key_at": table_queries.key_at("[t]", "[c]", "k", "?"),
    "key_after": table_queries.key_after("[t]", "[c]", "k", "?"),
    "access_check_query": table_queries.access_check_query("[t]"),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_name_us_and_quote_the_database(name: str) -> None:
    text = queries.of_database(CONSTANTS[name], ODD)
    assert text.startswith("/* cdc-assets: ")
    assert "{" not in text
    assert ODD not in text.replace("[d]]b]", "")


@pytest.mark.parametrize("name", BUILT)
def test_built_texts_name_us_and_quote(name: str) -> None:
    assert BUILT[name].startswith(f"/* cdc-assets: {name.split()[0]} */ ")
    assert "{" not in BUILT[name]
    assert ODD not in BUILT[name].replace("[d]]b]", "")


def test_change_tables_are_quoted() -> None:
    assert change_queries.change_table(ODD, "a]b") == "[d]]b].cdc.[a]]b_CT]"
    assert BUILT["probes"].count("?") == 4
    assert BUILT["rows_per_commit"].count("?") == 4


def test_each_extreme_is_a_seek_of_its_own() -> None:
    selects = re.findall(r"\(SELECT (\w+)\(([^)]+)\) FROM (\S+)", BUILT["extremes"])
    assert selects == [
        (name, column, table) for column, table in (("[c]", "[t]"), ("[d]", "[u]")) for name in ("MIN", "MAX")
    ]
    assert BUILT["extremes"].count("MIN(") == BUILT["extremes"].count("MAX(") == 2


def test_rows_of_one_instance_are_grouped_once() -> None:
    assert change_queries.rows_per_commit(ODD, ["c"]).count("GROUP BY") == 1


def depth(text: str) -> int:
    level = deepest = 0
    for char in text:
        level += (char == "(") - (char == ")")
        deepest = max(deepest, level)
    return deepest


def test_unions_nest_by_the_logarithm() -> None:
    names = [f"i{number}" for number in range(200)]
    assert depth(change_queries.probes("d", names)) <= depth(change_queries.probes("d", names[:1])) + 8


COMBINED = {
    "TAG",
    "query",
    "union_all",
    "PING",
    "of_database",
    "probes",
    "null_probes",
    "rows_per_commit",
    "rows_in_commit",
    "rows_behind",
    "extremes",
    "key_after",
    "access_check_query",
}
"""What asks nothing that has a page of its own: plain SELECTs, and statements built of others."""


def documented() -> Iterator[tuple[str, str]]:
    """Public constants and functions of the modules, each with its docstring."""
    body = [node for module in MODULES for node in ast.parse(inspect.getsource(module)).body]
    for node, following in pairwise([*body, ast.Pass()]):
        if isinstance(node, ast.FunctionDef):
            yield node.name, ast.get_docstring(node) or ""
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            told = following.value if isinstance(following, ast.Expr) else None
            yield node.targets[0].id, str(told.value) if isinstance(told, ast.Constant) else ""


@pytest.mark.parametrize(("name", "text"), [pair for pair in documented() if pair[0][0] != "_"])
def test_statements_have_their_vendor_page(name: str, text: str) -> None:
    assert ("https://learn.microsoft.com/en-us/sql/" in text) == (name not in COMBINED)


@pytest.mark.parametrize(
    ("protocol", "adapter"), [(ports.Source, SqlServerSource), (ports.BulkSource, MssqlBulkSource)]
)
def test_adapters_have_the_ports_signatures(protocol: type, adapter: type) -> None:
    for name, method in vars(protocol).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            wanted = inspect.signature(method).parameters
            assert [(p.name, p.default) for p in inspect.signature(getattr(adapter, name)).parameters.values()] == [
                (p.name, p.default) for p in wanted.values()
            ]
