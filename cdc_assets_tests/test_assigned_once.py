"""No module and no class assigns a name twice: the first value would be gone silently, as after a rename onto a name that is taken."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "cdc_assets"


def assigned(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.Assign):
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
        elif isinstance(statement, ast.ClassDef) or (
            isinstance(statement, ast.FunctionDef) and not statement.decorator_list
        ):
            yield statement.name


def twice(source: str) -> list[str]:
    """Names that the module or one of its classes assigns more than once; functions with decorators may be properties."""
    tree = ast.parse(source)
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    return [name for scope in scopes for name, count in Counter(assigned(scope.body)).items() if count > 1]


def test_no_name_is_assigned_twice() -> None:
    found = {str(path.relative_to(ROOT)): names for path in ROOT.rglob("*.py") if (names := twice(path.read_text()))}
    assert not found


@pytest.mark.parametrize("text", ["A = 1\nA = 2\n", "class C:\n    x: int = 1\n    x = 2\n", "def f(): ...\nf = 1\n"])
def test_what_is_searched_for_is_found(text: str) -> None:
    assert twice(text)
