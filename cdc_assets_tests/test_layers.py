"""The rooms know only whom they may know (docs/architecture.md)."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

DOMAIN = {"snapshot", "streaming", "history", "signals", "transactions", "notifications", "heartbeat", "lake"}
LOWER = {"envelope", "typemap", "config"}
BASE = {"core", "errors"}

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "core": {"errors"},
    "config": BASE,
    "typemap": BASE | {"config"},
    "envelope": BASE | {"config", "typemap"},
    **dict.fromkeys(DOMAIN, BASE | LOWER | DOMAIN),
    "resources": BASE | LOWER | DOMAIN,
    "defs": BASE | LOWER | DOMAIN | {"resources"},
    "definitions": BASE | LOWER | {"defs", "resources"},
    "cli": BASE | LOWER | DOMAIN | {"defs", "resources", "standin", "definitions"},
    "standin": set(),
}
"""Room → rooms it may import, besides itself."""

OUTSIDE_FORBIDDEN = {
    "dagster": BASE | LOWER | DOMAIN | {"standin"},
    "dagster_pyspark": BASE | LOWER | DOMAIN | {"standin", "cli"},
    "pyspark": BASE | LOWER | DOMAIN | {"standin", "cli"},
    "pyodbc": BASE | LOWER | DOMAIN | {"defs", "standin"},
    "mssql_python": BASE | LOWER | DOMAIN | {"defs", "standin"},
    "deltalake": BASE | LOWER | (DOMAIN - {"lake"}),
    "sqlglot": BASE | LOWER | DOMAIN | {"resources", "defs", "cli"},
}
"""Outside package → rooms that must not import it."""


def modules() -> list[Path]:
    return [*sorted((ROOT / "cdc_assets").rglob("*.py")), *sorted((ROOT / "resources").rglob("*.py"))]


def room_of(parts: list[str]) -> str | None:
    if parts[0] == "resources":
        return "resources"
    if parts[0] == "cdc_assets":
        return parts[1] if len(parts) > 1 else None
    return None


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_what_its_room_may(path: Path) -> None:
    room = room_of(list(path.relative_to(ROOT).with_suffix("").parts))
    if room in (None, "__init__", "__main__"):
        return
    for name in imports(path):
        target = room_of(name.split("."))
        if target is not None and target not in (room, "__version__"):
            assert target in ALLOWED[room], f"{room} must not import {name}"
        forbidden = OUTSIDE_FORBIDDEN.get(name.split(".")[0], set())
        assert room not in forbidden, f"{room} must not import {name}"


def test_core_uses_the_standard_library_only() -> None:
    import sys

    for path in (ROOT / "cdc_assets" / "core").glob("*.py"):
        for name in imports(path):
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or top in ("cdc_assets", "pyarrow"), f"{path.name} imports {name}"
