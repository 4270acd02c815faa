"""Every property that a message names exists, some test sets each, and what the table says of our own numbers is so."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from cdc_assets.config.properties import PROPERTIES, property_of
from cdc_assets.config.property import Property, Status
from cdc_assets.incremental.rounds import MAX_CHUNKS

ROOT = Path(__file__).parents[3]
MODULES = sorted(
    path
    for folder in ("cdc_assets", "resources")
    for path in (ROOT / folder).rglob("*.py")
    if not {"standin", "table"} & set(path.parts)
)
FIRST = "|".join(sorted({row.name.split(".")[0] for row in PROPERTIES if "." in row.name}))
NAMED = re.compile(rf"(?<![\w./<#-])(?:{FIRST})(?:\.(?:[A-Za-z]+|<[a-z]+>|\*))+(?![\w(/])")
NO_PROPERTIES = re.compile(
    r"(database\.)?(schema\.)?table|(value|key|event|max|acks|message|linger)\..*|lake\.(form|sink)"
    r"|database\.(dbname|pdb\.name|url|sslmode|ssl\.mode|server\.id|include\.list)|message\.prefix\..*"
    r"|offsets\.dat|offset\.mismatch\.strategy|topic\.(regex|replacement)"
    r"|table\.(field|fields|op|expand|json)\..*|include\.list"
    r"|decimal\.format|transaction\.(max\.)?timeout\.ms|queue\.buffering\..*|topic\.metadata\.refresh\.interval\.ms"
)
"""Forms of names, parts of events and of Kafka's own options, options of transforms, a mark in the lake, a module, properties of other connectors."""


def texts(module: Path) -> Iterator[str]:
    """String constants of a module that are no documentation."""
    tree = ast.parse(module.read_text())
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def is_known(name: str) -> bool:
    start = name.removesuffix("*").removesuffix(".") + "."
    return any(
        row.name == name or row.name.startswith(start) or ("<" not in name and row.patterned and row.holes(name))
        for row in PROPERTIES
    )


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_properties_exist(module: Path) -> None:
    named = {name for text in texts(module) for name in NAMED.findall(text) if not NO_PROPERTIES.fullmatch(name)}
    assert [name for name in sorted(named) if not is_known(name)] == []


def test_chunks_of_a_round() -> None:
    assert f"Up to {MAX_CHUNKS} chunks" in property_of("incremental.snapshot.chunk.size").note
    assert f"{MAX_CHUNKS} times" in (ROOT / "docs" / "signals.md").read_text()


@cache
def settings_of_tests() -> set[str]:
    """Texts and keywords of all tests, of which those that set a property are some."""
    found: set[str] = set()
    for module in sorted((ROOT / "cdc_assets_tests").rglob("*.py")):
        if module.parent == Path(__file__).parent and module.name not in ("test_load.py", "test_masks.py"):
            continue
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value.replace("__", "."))
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg.replace("__", "."))
    return found


CHOSEN = [row for row in PROPERTIES if row.status is Status.SUPPORTED and len(row.kind.values) != 1]


@pytest.mark.long
@pytest.mark.parametrize("row", CHOSEN, ids=lambda row: row.name)
def test_some_test_sets_each_property(row: Property) -> None:
    known = settings_of_tests()
    assert row.name in known or any(row.patterned and row.holes(text) for text in known)
