"""What a docstring says of an argument tells something: type, unit or meaning, and not its name again."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILLERS = re.findall(
    r"\w+",
    "a an the of its it is which whose where what that all one these given own when now "
    "capture table lake server settings step time signal snapshot stream",
)
ENTRY = re.compile(r"^ {4}(\*{0,2}\w+): ?(.*(?:\n {8,}.*)*)", re.MULTILINE)


def entries(path: Path) -> Iterator[tuple[str, str, str]]:
    """Owner, name and text of each argument that is described."""
    for node in ast.walk(ast.parse(path.read_text())):
        text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else None
        _, found, section = (text or "").partition("Args:\n")
        for name, words in ENTRY.findall(section.split("\n\n")[0]) if found else ():
            yield node.name, name, words  # type: ignore[attr-defined]


def test_what_is_said_of_an_argument_says_something() -> None:
    paths = list((ROOT / "cdc_assets").rglob("*.py"))
    found = [(path, *entry) for path in paths for entry in entries(path)]
    assert len(found) > 400
    empty = [
        f"{path.relative_to(ROOT)}: {owner}, {name}: {text}"
        for path, owner, name, text in found
        if "`" not in text
        and not {word.rstrip("s") for word in re.findall(r"[a-z]+|[A-Z]+", text.lower())}
        - {word.rstrip("s") for word in {*FILLERS, *re.findall(r"[a-z]+", name.lower())}}
    ]
    assert not empty, "\n".join(empty)
