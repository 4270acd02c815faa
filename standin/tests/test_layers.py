"""Each room of the stand-in imports only the rooms that it may know; so no two know each other."""

import ast
from collections.abc import Iterable
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent / "mssql_standin"


@cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


ROOMS: dict[str, set[str]] = {
    "text": set(),
    "sql": set(),
    "store": {"sql"},
    "capture": {"sql"},
    "system": {"capture", "sql"},
    "queries": {"capture", "sql", "store", "system", "text"},
    "changes": {"queries", "sql", "store", "text"},
    "definitions": {"capture", "changes", "queries", "sql", "store", "text"},
    "batches": {"changes", "definitions", "queries", "sql", "store", "text"},
    "engine": {"batches", "capture", "definitions", "queries", "sql", "store", "system", "text"},
    "wire": {"sql", "store"},
}
"""Room of the stand-in → other rooms of it that it may import; modules beside them serve all."""


def own_imports(paths: Iterable[Path]) -> set[str]:
    """What modules of the stand-in import of it: rooms, and modules beside them."""
    parts = [name.split(".") for path in paths for name in imports(path)]
    return {part[1] for part in parts if part[0] == "mssql_standin" and len(part) > 1}


def test_rooms_know_each_other_one_way_only() -> None:
    rooms = {path.parent.name for path in HOME.glob("*/__init__.py")}
    used = {room: own_imports((HOME / room).rglob("*.py")) & rooms - {room} for room in rooms}
    assert used == ROOMS
    TopologicalSorter(ROOMS).prepare()


def test_what_the_rooms_share_knows_no_room() -> None:
    reached = own_imports(path for room in ROOMS for path in (HOME / room).rglob("*.py")) - ROOMS.keys()
    assert {"catalog", "contract", "errors"} <= reached
    seen: set[str] = set()
    while reached - seen:
        name = (reached - seen).pop()
        seen.add(name)
        reached |= own_imports([HOME / f"{name}.py"])
    assert not seen & ROOMS.keys()


@pytest.mark.parametrize("room", sorted(ROOMS.keys() - {"sql"}))  # expressions hold queries, queries hold expressions
def test_modules_of_a_room_import_in_one_direction(room: str) -> None:
    home = f"mssql_standin.{room}."
    graph: dict[str, set[str]] = {}
    for path in (HOME / room).rglob("*.py"):
        own = {name.removeprefix(home).split(".")[0] for name in imports(path) if name.startswith(home)}
        graph[path.stem] = own
    TopologicalSorter(graph).prepare()


def test_it_imports_nothing_of_the_rest() -> None:
    tops = {name.split(".")[0] for path in HOME.rglob("*.py") for name in imports(path)}
    assert not tops & {"cdc_assets", "cdc_assets_tests", "demo", "resources", "pyodbc", "mssql_python", "pytds"}


def test_its_tests_import_nothing_of_the_rest() -> None:
    tops = {name.split(".")[0] for path in Path(__file__).parent.rglob("*.py") for name in imports(path)}
    assert "mssql_standin" in tops
    assert not tops & {"cdc_assets", "cdc_assets_tests", "demo", "resources"}
