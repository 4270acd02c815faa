"""Every property that a message names exists, and what the table says of the program's own numbers is so."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets.config.properties import PROPERTIES, property_of
from cdc_assets.snapshot.incremental_round import MOST_CHUNKS

ROOT = Path(__file__).parents[3]
MODULES = sorted(
    path
    for folder in ("cdc_assets", "resources")
    for path in (ROOT / folder).rglob("*.py")
    if not {"standin", "table"} & set(path.parts)
)
FIRST = "|".join(sorted({row.name.split(".")[0] for row in PROPERTIES if "." in row.name}))
NAMED = re.compile(rf"(?<![\w./<#-])(?:{FIRST})(?:\.(?:[A-Za-z]+|<[a-z]+>|\*))+(?![\w(/])")
NO_PROPERTIES = re.compile(r"(database\.)?schema\.table|(value|key|event|max)\..*|lake\.form")
"""Forms of names, parts of events and of Kafka's own options, a mark in the lake."""


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
    assert f"Up to {MOST_CHUNKS} chunks" in property_of("incremental.snapshot.chunk.size").note
    assert f"{MOST_CHUNKS} times" in (ROOT / "docs" / "signals.md").read_text()
