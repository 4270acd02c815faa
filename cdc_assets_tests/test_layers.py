"""Each room imports only the rooms that it may know; so no two know each other (docs/architecture.md)."""

import ast
import re
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
IMPORTED_TEST = re.compile(r"^\s*(?:from|import) cdc_assets_tests\S*\.test_\w+.*", re.MULTILINE)

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "core": {"errors"},
    "config": {"core", "errors"},
    "typemap": {"config", "core", "errors"},
    "envelope": {"config", "core", "errors", "typemap"},
    "lake": {"config", "core", "errors"},
    "history": {"config", "core", "envelope", "errors", "lake", "typemap"},
    "heartbeat": {"config", "core", "envelope", "lake", "typemap"},
    "notifications": {"config", "core", "envelope", "errors", "lake", "typemap"},
    "transactions": {"config", "core", "envelope", "errors", "typemap"},
    "ledger": {"core", "errors", "lake"},
    "capture": {
        "config",
        "core",
        "envelope",
        "errors",
        "heartbeat",
        "history",
        "lake",
        "ledger",
        "notifications",
        "transactions",
    },
    "signals": {"capture", "config", "core", "errors", "history", "lake", "ledger"},
    "snapshot": {"capture", "config", "core", "envelope", "errors", "history", "lake", "ledger"},
    "streaming": {"capture", "core", "envelope", "errors", "history", "lake", "ledger", "transactions"},
    "incremental": {"capture", "core", "envelope", "errors", "lake", "ledger", "signals"},
    "run": {
        "capture",
        "config",
        "core",
        "envelope",
        "errors",
        "heartbeat",
        "history",
        "incremental",
        "lake",
        "ledger",
        "notifications",
        "signals",
        "snapshot",
        "streaming",
    },
    "adapters.clock": {"core"},
    "adapters.kafka": {"config", "core", "errors"},
    "adapters.sqlserver": {"config", "core", "errors", "history"},
    "adapters.spark": {"config", "core", "errors", "lake"},
    "defs": {
        "adapters.clock",
        "adapters.kafka",
        "adapters.spark",
        "adapters.sqlserver",
        "capture",
        "config",
        "core",
        "envelope",
        "errors",
        "history",
        "lake",
        "ledger",
        "notifications",
        "run",
        "signals",
        "snapshot",
    },
    "cli": {
        "adapters.clock",
        "adapters.kafka",
        "adapters.spark",
        "adapters.sqlserver",
        "capture",
        "config",
        "core",
        "defs",
        "envelope",
        "errors",
        "history",
        "lake",
        "ledger",
        "run",
        "signals",
        "standin",
    },
    "standin": set(),
    "resources": {"config", "public"},
}
"""Room → rooms it may import, besides itself. `public` is what `cdc_assets` itself names."""

ONLY_IN: dict[str, set[str]] = {
    "dagster": {"defs", "resources", "cli"},
    "dagster_pyspark": {"defs"},
    "pyspark": {"defs", "adapters.spark"},
    "pyodbc": {"adapters.sqlserver", "defs", "standin"},
    "mssql_python": {"adapters.sqlserver", "standin"},
    "confluent_kafka": {"adapters.kafka"},
    "deltalake": {"lake", "ledger", "history", "adapters.spark", "defs"},
    "sqlglot": {"standin"},
    "typer": {"cli", "standin"},
    "rich": {"cli", "standin"},
}
"""Outside package → the rooms that may import it."""


def room_of(parts: list[str]) -> str | None:
    """The room of a dotted name; None if it is none of ours."""
    if parts[0] == "resources":
        return "resources"
    if parts[0] != "cdc_assets":
        return None
    if len(parts) == 1 or (len(parts) == 2 and not is_room(parts[1])):
        return "public"
    return ".".join(parts[1:3]) if parts[1] == "adapters" and len(parts) > 2 else parts[1]


@cache
def is_room(name: str) -> bool:
    """Whether it is a package or module of ours and not a name that the library makes public."""
    home = ROOT / "cdc_assets" / name
    return home.is_dir() or home.with_suffix(".py").is_file()


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


def modules() -> list[Path]:
    """All modules, but the library's own head and package heads that import nothing."""
    found = [*(ROOT / "cdc_assets").rglob("*.py"), *(ROOT / "resources").rglob("*.py")]
    return sorted(path for path in found if path != ROOT / "cdc_assets" / "__init__.py")


def own_room(path: Path) -> str:
    """The room that a module lies in."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return room_of(parts[:-1] if parts[-1] == "__init__" else parts) or ""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_what_its_room_may(path: Path) -> None:
    room = own_room(path)
    for name in imports(path):
        target = room_of(name.split("."))
        if target is None:
            allowed = ONLY_IN.get(name.split(".")[0])
            assert allowed is None or room in allowed, f"{room} must not import {name}"
        elif target != room and name != "cdc_assets.__version__" and room != "adapters":
            assert target in ALLOWED[room], f"{room} must not import {name}"


def test_every_room_is_listed_and_there_is_no_circle() -> None:
    assert {own_room(path) for path in modules()} - {"adapters"} == set(ALLOWED)
    order = list(TopologicalSorter(ALLOWED).static_order())
    assert order.index("core") < order.index("lake") < order.index("capture") < order.index("run") < order.index("cli")


def test_no_test_module_is_imported() -> None:
    """What tests share stands in modules of its own."""
    tests = list((ROOT / "cdc_assets_tests").rglob("*.py"))
    assert len(tests) > 100
    assert not {path.name: found for path in tests if (found := IMPORTED_TEST.findall(path.read_text()))}


def test_nothing_is_allowed_that_nobody_uses() -> None:
    used: dict[str, set[str | None]] = {room: set() for room in ALLOWED}
    for path in modules():
        if (room := own_room(path)) in used:
            used[room] |= {room_of(name.split(".")) for name in imports(path)}
    idle = {room: allowed - used[room] for room, allowed in ALLOWED.items() if allowed - used[room]}
    assert not idle


def test_core_needs_the_standard_library_and_arrow_types_alone() -> None:
    for path in (ROOT / "cdc_assets" / "core").glob("*.py"):
        for name in imports(path):
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or top in ("cdc_assets", "pyarrow"), f"{path.name} imports {name}"


IN_STANDIN: dict[str, set[str]] = {
    "batches": {"changes", "definitions", "engine", "queries", "sql", "store", "text"},
    "capture": {"sql"},
    "changes": {"batches", "definitions", "engine", "queries", "sql", "store", "text"},
    "definitions": {"batches", "capture", "changes", "engine", "queries", "sql", "store", "text"},
    "engine": {"batches", "capture", "definitions", "queries", "sql", "store", "system", "text"},
    "queries": {"capture", "definitions", "engine", "sql", "store", "system", "text"},
    "sql": set(),
    "store": {"capture", "engine", "queries", "sql"},
    "system": {"capture", "sql"},
    "text": {"queries"},
    "wire": {"queries", "sql", "store"},
}
"""Room of the stand-in → other rooms of it that it may import; modules beside them serve all."""


def test_rooms_of_the_standin_do_not_know_each_other_both_ways() -> None:
    used: dict[str, set[str]] = {room: set() for room in IN_STANDIN}
    for room, found in used.items():
        for path in (ROOT / "cdc_assets" / "standin" / room).rglob("*.py"):
            parts = [name.split(".") for name in imports(path) if name.startswith("cdc_assets.standin.")]
            found |= {part[2] for part in parts} & IN_STANDIN.keys() - {room}
    assert used == IN_STANDIN
