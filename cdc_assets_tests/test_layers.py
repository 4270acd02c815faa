"""Each room imports only the rooms that it may know; so no two know each other (docs/architecture.md)."""

import ast
import re
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from cdc_assets_tests.sources import nodes_of, tree_of

pytestmark = pytest.mark.usefixtures("parsed_once")
ROOT = Path(__file__).parent.parent
IMPORTED_TEST = re.compile(r"^\s*(?:from|import) cdc_assets_tests\S*\.test_\w+.*", re.MULTILINE)

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "core": {"errors"},
    "registry": {"core", "errors"},
    "config": {"core", "errors"},
    "kernels": set(),
    "typemap": {"config", "core", "errors", "kernels"},
    "envelope": {"config", "core", "errors", "kernels", "typemap"},
    "lake": {"config", "core", "errors", "kernels"},
    "history": {"config", "core", "envelope", "errors", "lake", "typemap"},
    "system_topics": {"config", "core", "envelope", "errors", "kernels", "lake", "typemap"},
    "ledger": {"core", "errors", "lake"},
    "shared": {"config", "core", "envelope", "errors", "history", "lake", "ledger"},
    "signals": {"shared", "config", "core", "errors", "history", "lake", "ledger"},
    "snapshot": {"shared", "config", "core", "envelope", "errors", "history", "lake", "ledger", "system_topics"},
    "streaming": {"shared", "core", "envelope", "errors", "history", "lake", "ledger", "system_topics"},
    "incremental": {"shared", "core", "envelope", "errors", "lake", "ledger", "signals"},
    "adoption": {"shared", "config", "core", "errors", "history", "ledger", "streaming"},
    "connectors.engine": {"config", "core", "envelope", "errors", "lake", "ledger", "typemap"},
    "mirror": {"config", "core", "envelope", "errors", "history", "kernels", "lake", "ledger", "typemap"},
    "reconcile": {
        "shared",
        "config",
        "core",
        "envelope",
        "errors",
        "history",
        "kernels",
        "lake",
        "ledger",
        "mirror",
        "signals",
    },
    "publish": {"config", "core", "envelope", "errors", "history", "lake", "ledger", "registry", "typemap"},
    "retention": {"config", "core", "envelope", "errors", "kernels", "lake", "ledger", "publish"},
    "connectors.reader": {"config", "connectors.engine", "core", "envelope", "errors", "lake", "registry", "typemap"},
    "capture": {
        "shared",
        "config",
        "core",
        "envelope",
        "errors",
        "history",
        "incremental",
        "lake",
        "ledger",
        "signals",
        "snapshot",
        "streaming",
        "system_topics",
    },
    "overview": {
        "shared",
        "config",
        "core",
        "connectors.engine",
        "envelope",
        "errors",
        "history",
        "lake",
        "ledger",
        "mirror",
        "publish",
        "capture",
        "signals",
        "streaming",
    },
    "adapters.clock": {"core"},
    "connectors.databases": {"config", "core", "connectors.engine", "errors"},
    "connectors.debezium": {"config", "connectors.engine", "core", "errors"},
    "adapters.kafka": {"config", "core", "connectors.engine", "errors", "publish", "connectors.reader"},
    "adapters.sqlserver": {"config", "core", "errors"},
    "adapters.threads": {"core"},
    "adapters.spark": {"adapters.threads", "config", "core", "errors", "lake", "mirror"},
    "metrics": {"shared", "config", "core", "errors", "overview"},
    "assembly": {
        "adapters.clock",
        "connectors.databases",
        "connectors.debezium",
        "adapters.kafka",
        "adapters.sqlserver",
        "adoption",
        "shared",
        "config",
        "core",
        "connectors.engine",
        "errors",
        "lake",
        "ledger",
        "mirror",
        "publish",
        "connectors.reader",
        "reconcile",
        "retention",
        "capture",
        "signals",
        "system_topics",
    },
    "defs": {
        "metrics",
        "connectors.databases",
        "adapters.kafka",
        "adapters.spark",
        "adapters.sqlserver",
        "assembly",
        "shared",
        "config",
        "core",
        "connectors.engine",
        "envelope",
        "errors",
        "history",
        "lake",
        "ledger",
        "mirror",
        "overview",
        "publish",
        "reconcile",
        "capture",
        "signals",
        "system_topics",
    },
    "cli": {
        "metrics",
        "connectors.databases",
        "adapters.spark",
        "adapters.sqlserver",
        "adapters.threads",
        "adoption",
        "assembly",
        "shared",
        "config",
        "core",
        "connectors.engine",
        "envelope",
        "errors",
        "history",
        "lake",
        "mirror",
        "overview",
        "reconcile",
        "publish",
        "capture",
        "signals",
    },
    "resources": {"config", "public"},
}
"""Room → rooms it may import, besides itself. `public` is what `cdc_assets` itself names."""

ONLY_IN: dict[str, set[str]] = {
    "dagster": {"defs", "resources"},
    "dagster_pyspark": {"defs"},
    "pyspark": {"defs", "adapters.spark"},
    "pyodbc": {"adapters.sqlserver", "defs"},
    "mssql_python": {"adapters.sqlserver"},
    "aiokafka": set(),  # a foreign reader in tests
    "confluent_kafka": {"adapters.kafka", "registry"},
    "fastavro": {"connectors.reader"},
    "jpype": {"connectors.debezium"},
    "pymysql": {"connectors.databases"},
    "psycopg": {"connectors.databases"},
    "oracledb": {"connectors.databases"},
    "deltalake": {"lake", "ledger", "history", "mirror", "publish", "adapters.spark", "defs"},
    "mssql_standin": set(),
    "demo": set(),
    "sqlglot": set(),
    "typer": {"cli"},
    "rich": {"cli"},
    "prometheus_client": {"metrics"},
    "opentelemetry": {"metrics"},
}
"""Outside package → the rooms that may import it."""

HOUSES = {"adapters", "connectors"}
"""Folders of rooms."""


def room_of(parts: list[str]) -> str | None:
    """The room of a dotted name; None if it is none of ours."""
    if parts[0] == "resources":
        return "resources"
    if parts[0] != "cdc_assets":
        return None
    if len(parts) == 1 or (len(parts) == 2 and not is_room(parts[1])):
        return "public"
    return ".".join(parts[1:3]) if parts[1] in HOUSES and len(parts) > 2 else parts[1]


@cache
def is_room(name: str) -> bool:
    """Whether it is a package or module of ours and not a name that the library makes public."""
    home = ROOT / "cdc_assets" / name
    return home.is_dir() or home.with_suffix(".py").is_file()


@cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names that a module imports."""
    found: set[str] = set()
    for node in nodes_of(tree_of(path)):
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
        elif target != room and name != "cdc_assets.__version__" and room not in HOUSES:
            assert target in ALLOWED[room], f"{room} must not import {name}"


def test_every_room_is_listed_and_there_is_no_circle() -> None:
    assert {own_room(path) for path in modules()} - HOUSES == set(ALLOWED)
    order = list(TopologicalSorter(ALLOWED).static_order())
    assert (
        order.index("core") < order.index("lake") < order.index("shared") < order.index("capture") < order.index("cli")
    )


def drawing() -> str:
    """`ALLOWED` in lines: each room, and those that it may import beside what these may; the outermost first."""
    order = list(TopologicalSorter(ALLOWED).static_order())
    below: dict[str, set[str]] = {}
    depths: dict[str, int] = {}
    for room in order:
        below[room] = ALLOWED.get(room, set()).union(*(below[other] for other in ALLOWED.get(room, ())))
        depths[room] = 1 + max((depths[other] for other in ALLOWED.get(room, ())), default=0)
    lines: dict[str, list[str]] = {}
    for room in sorted(ALLOWED.keys() - {"resources"}, key=lambda room: (-depths[room], room)):
        nearest = ALLOWED[room].difference(*(below[other] for other in ALLOWED[room]))
        if nearest:
            lines.setdefault(", ".join(sorted(nearest, key=lambda other: (-depths[other], other))), []).append(room)
    return "\n".join(f"{', '.join(rooms)} → {nearest}" for nearest, rooms in lines.items())


def test_rooms_are_drawn_as_they_are() -> None:
    """`python -m cdc_assets_tests.test_layers` prints the drawing."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert text.partition("## Rooms\n")[2].partition("```\n")[2].partition("\n```")[0] == drawing()


def reach(module: str) -> set[str]:
    """Modules that a module imports, and those that these import."""
    known = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in modules()}
    found, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        if name in known and name not in found:
            found.add(name)
            waiting += imports(known[name])
            waiting += [part.rpartition(".")[0] for part in imports(known[name])]
    return found


def test_a_run_reaches_nothing_that_is_beside_it() -> None:
    """What a run is handed (retention) or what is beside it (mirrors, Kafka, other connectors) cannot break it."""
    beside = {"adoption", "connectors", "mirror", "overview", "publish", "reconcile", "retention"}
    found = reach("cdc_assets.capture.capture")
    assert len(found) > 100
    assert not sorted(name for name in found if name.split(".")[1] in beside)


def test_tests_lie_in_folders_of_the_rooms() -> None:
    """What `assembly` joins is tested where it is used; every other folder has tests of its name, and no tests are left over."""
    rooms = {path.name for path in (ROOT / "cdc_assets").iterdir() if (path / "__init__.py").is_file()}
    found = {path.name for path in (ROOT / "cdc_assets_tests" / "unit").iterdir() if any(path.rglob("test_*.py"))}
    assert rooms - found == {"assembly"}
    assert found <= rooms


def test_every_room_is_described() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"\w+", row)}
    assert {room.split(".")[0] for room in ALLOWED} - {"resources"} <= described


MADE_IN: dict[str, set[str]] = {
    "capture/activities.py": {
        "BlockingSnapshots",
        "Due",
        "GivenStructures",
        "Heartbeat",
        "Housekeeper",
        "IncrementalSnapshot",
        "JobWatch",
        "Losses",
        "Planner",
        "RoundReader",
        "Rounds",
        "SignalWatch",
        "SnapshotPlanner",
        "Snapshotter",
        "WindowExecutor",
    },
    "capture/capture.py": {"Account", "Activities", "Lake", "Ledger", "NewTables", "Opening", "Server", "StreamLoop"},
    "capture/reset.py": {"Lake", "Ledger", "Losses"},  # no run: it compares topics with the record, without a server
    "assembly/capture.py": {"Capture"},
}
"""Module → what it alone makes: what works in a run is made once, and handed to those who use it."""


def test_what_works_in_a_run_is_made_in_one_place() -> None:
    made: dict[str, set[str]] = {name: set() for names in MADE_IN.values() for name in names}
    for path in modules():
        for node in nodes_of(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in made:
                made[node.func.id].add(str(path.relative_to(ROOT / "cdc_assets")))
    assert made == {name: {place for place, names in MADE_IN.items() if name in names} for name in made}


def test_what_travels_together_is_a_value_with_a_name() -> None:
    """Constructors take at most six arguments."""
    found: list[tuple[int, str]] = []
    for path in modules():
        for node in nodes_of(tree_of(path)):
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                    found.append((len(inner.args.args) + len(inner.args.kwonlyargs) - 1, node.name))
    assert len(found) > 100
    assert not sorted(one for one in found if one[0] > 6)


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


if __name__ == "__main__":
    print(drawing())  # noqa: T201
