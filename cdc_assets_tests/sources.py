"""Source files as tests of their texts see them: each is parsed once for all tests of a module that use `parsed_once`."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text())


@cache
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree, as `ast.walk` finds them."""
    return tuple(ast.walk(tree))


@contextmanager
def keeping_trees() -> Iterator[None]:
    """Keep trees as long as they are needed: so many small objects would slow down what comes after it."""
    try:
        yield
    finally:
        tree_of.cache_clear()
        nodes_of.cache_clear()
