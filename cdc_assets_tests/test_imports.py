"""An import changes nothing of the process that imports: no allocator, no driver's pool, no logger, no variable of the environment.

Such settings are made by `core.process_settings`, or at a first connection. What a module does as it is imported is looked for in the syntax
trees: calls of what other modules have, and assignments to what is theirs.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "cdc_assets"

DONE: dict[str, set[str]] = {
    "adapters/spark/daemon.py": {"prefer_installed"},  # it is a process of ours: Spark's daemon
    "adapters/sqlserver/watchdog.py": {"os.register_at_fork"},  # its own waits, which a child does not have
}
"""What modules do to others as they are imported, with the reason."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def run_at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that an import carries out, also inside `if` and `try`."""
    for statement in body:
        if isinstance(statement, _FUNCTIONS):
            continue
        if isinstance(statement, ast.If) and re.search("TYPE_CHECKING|__name__", ast.unparse(statement.test)):
            continue
        yield statement
        for name in ("body", "orelse", "finalbody"):
            yield from run_at_import(getattr(statement, name, []))


def done_to_others(tree: ast.Module) -> Iterator[str]:
    """What a module calls or assigns of others."""
    statements = list(run_at_import(tree.body))
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for statement in statements
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
    }
    for statement in statements:
        found: list[ast.expr] = []
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            found.append(statement.value.func)
        elif isinstance(statement, ast.Assign):
            found += [target for target in statement.targets if isinstance(target, ast.Attribute | ast.Subscript)]
        elif isinstance(statement, ast.Delete | ast.AugAssign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Delete) else [statement.target]
            found += [target for target in targets if isinstance(target, ast.Attribute | ast.Subscript)]
        for one in found:
            text = ast.unparse(one)
            if text.partition(".")[0].partition("[")[0].partition("(")[0] in imported:
                yield text


MODULES = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}


@pytest.mark.parametrize("name", MODULES)
def test_an_import_changes_nothing_of_others(name: str) -> None:
    assert set(done_to_others(ast.parse(MODULES[name].read_text()))) == DONE.get(name, set())


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ.setdefault('A', 'b')",
        "import os\nif True:\n    os.environ['A'] = 'b'",
        "import pyodbc\npyodbc.pooling = False",
        "import mssql_python\ntry:\n    mssql_python.pooling(enabled=False)\nfinally:\n    pass",
        "import logging\nlogging.getLogger('x').setLevel(10)",
        "from os import environ\ndel environ['A']",
    ],
)
def test_what_is_looked_for_is_found(text: str) -> None:
    assert list(done_to_others(ast.parse(text)))
    inside = "\n".join(f"    {line}" for line in text.splitlines())
    assert not list(done_to_others(ast.parse(f"def function():\n{inside}")))


_CODE = """
import logging, os
before = dict(os.environ), list(logging.root.handlers), logging.root.level
import pyarrow, pyodbc
pool, pooling = pyarrow.default_memory_pool().backend_name, pyodbc.pooling
import cdc_assets.adapters.kafka.producer, cdc_assets.adapters.sqlserver.bulk, cdc_assets.adapters.sqlserver.source
import cdc_assets.lake.topics, cdc_assets.mirror.capture, cdc_assets.capture.capture
assert (dict(os.environ), list(logging.root.handlers), logging.root.level) == before
assert (pyarrow.default_memory_pool().backend_name, pyodbc.pooling) == (pool, pooling) and pooling
"""


def test_who_imports_the_rooms_keeps_their_allocators_pools_and_loggers() -> None:
    own = {
        name: text
        for name, text in os.environ.items()
        if name not in ("ARROW_DEFAULT_MEMORY_POOL", "_RJEM_MALLOC_CONF")
    }
    done = subprocess.run([sys.executable, "-c", _CODE], env=own, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
