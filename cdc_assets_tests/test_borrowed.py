"""Private names of other libraries are used where they are explained, and nothing of another library is changed.

ruff sees `x._y` and `from a._b import c` (SLF001, PLC2701). What it does not see is looked for here in the syntax trees: `getattr(x, "_y")`,
`self._y` that a foreign base class has defined, `vars()`, `setattr` and assignments to modules, classes and objects of others.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from cdc_assets_tests.sources import nodes_of, tree_of

pytestmark = pytest.mark.usefixtures("parsed_once")
ROOT = Path(__file__).parent.parent / "cdc_assets"
PATHS = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}

BORROWED: dict[str, set[str]] = {
    "adapters/spark/jvm.py": {"_gateway", "_jvm", "_active_spark_context", "_lock", "_jsc", "_jsparkSession"},
    "adapters/sqlserver/named_connection.py": {"_construct_connection_string"},
    "cli/ending.py": {"_run_exitfuncs"},
    "defs/dagster_internals.py": {"AssetCheckEvaluationTargetMaterializationData", "DefinitionsLoadContext"},
}
"""Private names of other libraries by the one module that uses those of a library."""
MAX = 10
CODES = {
    "_ALL_BROKERS_DOWN",
    "_AUTHENTICATION",
    "_AUTO_OFFSET_RESET",
    "_FATAL",
    "_FENCED",
    "_MSG_TIMED_OUT",
    "_PARTITION_EOF",
    "_STATE",
    "_TIMED_OUT",
    "_TRANSPORT",
} | {"_UNKNOWN_PARTITION"}
"""Errors of Kafka's client itself: its documentation names them so, to tell them from the broker's."""
DOCUMENTED = {"_exit", "_replace", "_asdict", "_fields"} | CODES
"""Names that a documentation describes: `os._exit`, those of named tuples, codes of Kafka's client."""

CHANGED: dict[str, set[str]] = {
    "adapters/spark/jvm.py": {"SparkContext._gateway", "SparkContext._jvm"},  # the JVM is gone: pyspark forgets it
    "adapters/spark/daemon.py": {"daemon.worker"},  # Spark starts workers by this name, and lets nobody choose another
    "adapters/sqlserver/session.py": {"pyodbc.pooling"},  # its documented setting
    "core/kept.py": {"vars(found)"},  # objects of our own classes, as functools.cached_property does
}
"""What of another object is changed, by module; all else is left as it is."""

SETTINGS = {
    "args": "of an exception",
    "autocommit": "of a database connection (PEP 249's extensions, oracledb)",
    "call_timeout": "of a connection of oracledb",
    "daemon": "of a thread",
    "timeout": "of a connection of pyodbc and mssql-python",
}
"""Attributes of objects of others that are documented as settable."""


def modules() -> dict[str, ast.Module]:
    return {name: tree_of(path) for name, path in PATHS.items()}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in {"_", *DOCUMENTED}


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "cdc_assets"


def imported(tree: ast.Module) -> dict[str, str]:
    """Full names of what a module imports, by the name here."""
    found: dict[str, str] = {}
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def defined(tree: ast.AST) -> set[str]:
    """Names of attributes that classes and functions define, and of what the module itself does."""
    found: set[str] = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            found.add(node.attr)
    return found


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def borrowed(tree: ast.Module) -> set[str]:
    """Private names of others that a module uses."""
    own = defined(tree)
    found = set(of_bases(tree))
    for node in nodes_of(tree):
        match node:
            case ast.Attribute(value=value, attr=name) if is_private(name) and not is_self(value) and name not in own:
                found.add(name)
            case ast.Call(func=ast.Name("getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found |= {name} if is_private(name) else set()
            case ast.ImportFrom(module=str(module), names=names) if not is_ours(module):
                parts = module.split(".")
                within = any(map(is_private, parts))
                found |= {alias.name for alias in names if within or is_private(alias.name)}
            case ast.Import(names=names):
                found |= {alias.name for alias in names if any(map(is_private, alias.name.split(".")))}
    return found


def of_bases(tree: ast.Module) -> Iterator[str]:
    """Private names that classes of a module use on themselves and a foreign base class has defined."""
    for node in nodes_of(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        used = {child.attr for child in nodes_of(node) if isinstance(child, ast.Attribute) and is_self(child.value)}
        used |= {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
        if used := set(filter(is_private, used)):
            for base in foreign_bases(tree, node):
                yield from used & private_names(base)


def foreign_bases(tree: ast.Module, node: ast.ClassDef) -> Iterator[str]:
    """Full names of the classes of others from which a class is made, also by classes of ours."""
    names = imported(tree)
    classes = {other.name: other for other in nodes_of(tree) if isinstance(other, ast.ClassDef)}
    for base in node.bases:
        first, _, rest = ast.unparse(base.value if isinstance(base, ast.Subscript) else base).partition(".")
        if first in classes and classes[first] is not node:
            yield from foreign_bases(tree, classes[first])
        elif first in names:
            full = f"{names[first]}.{rest}".rstrip(".")
            if not is_ours(full):
                yield full
                continue
            module, _, name = full.rpartition(".")
            path = PATHS.get(module.partition(".")[2].replace(".", "/") + ".py")
            other = tree_of(path) if path else ast.Module([], [])
            for found in nodes_of(other):
                if isinstance(found, ast.ClassDef) and found.name == name:
                    yield from foreign_bases(other, found)


@cache
def private_names(full: str) -> frozenset[str]:
    """Private names that a class of others defines, or sets on its objects."""
    module, _, name = full.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), name)
    except ImportError:  # a client that is not installed
        return frozenset()
    found: set[str] = set()
    for base in kind.__mro__[:-1] if isinstance(kind, type) else ():
        found |= set(vars(base))
        try:
            found |= set(re.findall(r"self\.(_\w+)\b[^=\n]*=[^=]", inspect.getsource(base)))
        except (OSError, TypeError):  # it is not written in Python
            continue
    return frozenset(filter(is_private, found))


def changed(tree: ast.Module, attributes: frozenset[str]) -> set[str]:
    """What a module changes of others.

    Args:
        attributes: names of attributes that are ours.
    """
    names, found = imported(tree), set[str]()
    for node in nodes_of(tree):
        match node:
            case ast.Call(func=ast.Name("vars" | "setattr" | "delattr" as name), args=[about, *_]) if not is_self(
                about
            ):
                found.add(f"{name}({ast.unparse(about)})")
            case ast.Attribute(attr="__setattr__" | "__dict__" | "__class__" as name, value=value) if (
                not is_self(value) and name != "__class__"
            ):
                found.add(ast.unparse(node))
            case ast.Attribute(ctx=ast.Store() | ast.Del(), attr=name, value=ast.Name(first)) if first in names and (
                not is_ours(names[first])
            ):
                found.add(ast.unparse(node))
            case ast.Attribute(ctx=ast.Store() | ast.Del(), attr=name, value=value) if not is_self(value):
                found |= {ast.unparse(node)} if name not in attributes | SETTINGS.keys() else set()
    return found


@cache
def own_attributes() -> frozenset[str]:
    """Names of attributes that classes of ours have."""
    found: set[str] = set()
    for tree in modules().values():
        for node in nodes_of(tree):
            if isinstance(node, ast.ClassDef):
                found |= defined(node)
    return frozenset(found)


def test_private_names_of_others_are_used_where_they_are_explained_alone() -> None:
    assert {name: found for name, tree in modules().items() if (found := borrowed(tree))} == BORROWED
    assert sum(map(len, BORROWED.values())) <= MAX


@pytest.mark.parametrize("module", BORROWED)
def test_each_has_its_reason_and_the_version_it_was_read_at(module: str) -> None:
    head = ast.get_docstring(tree_of(PATHS[module])) or ""
    assert re.search(r"Read at [\w -]+ \d+(\.\d+)+", head)
    rows = [line.split("|")[1] for line in head.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"(\w+)`", row)} == BORROWED[module]


def test_nothing_of_others_is_changed() -> None:
    assert {name: found for name, tree in modules().items() if (found := changed(tree, own_attributes()))} == CHANGED


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("x = thing._inner", "_inner"),
        ("x = getattr(thing, '_inner', None)", "_inner"),
        ("from dagster._core.events import Event", "Event"),
        ("from dagster import _private", "_private"),
        ("import dagster._core", "dagster._core"),
        ("import threading\nclass A(threading.Thread):\n def go(self): return self._target", "_target"),
        ("from threading import Thread\nclass A(Thread): ...\nclass B(A):\n def _bootstrap(self): ...", "_bootstrap"),
    ],
)
def test_what_is_borrowed_is_found(source: str, name: str) -> None:
    assert borrowed(ast.parse(source)) == {name}


@pytest.mark.parametrize(
    "source",
    ["class A:\n def f(self, other): return self._a + other._a\n def g(self): self._a = 1", "x = thing.__name__"],
)
def test_ones_own_is_not_borrowed(source: str) -> None:
    assert not borrowed(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "vars(storage).update(connect=1)",
        "setattr(thing, 'a', 1)",
        "import pyodbc\npyodbc.pooling = False",
        "from pyspark import SparkContext\ndel SparkContext.name",
        "thing.connect = own",
        "thing.inner.connect += 1",
        "thing.__dict__['a'] = 1",
        "object.__setattr__(thing, 'a', 1)",
    ],
)
def test_what_is_changed_is_found(source: str) -> None:
    assert changed(ast.parse(source), frozenset({"own"}))


def test_ones_own_may_be_changed() -> None:
    assert not changed(ast.parse("class A:\n def f(self, a):\n  self.x = a.own = 1"), frozenset({"own"}))


def test_codes_of_kafkas_client_are_documented() -> None:
    assert all(isinstance(getattr(KafkaError, name), int) for name in CODES)
