"""How SQLite reaches Python: one function, told by a specification text what to do.

`tsql('cast|nvarchar(30)|int||', x)` – the first argument names a *builder* and its
arguments; the builder makes a Python callable once per text and process. So nothing has
to be registered per statement, SQLite may treat the call as constant when its arguments are,
and stored text (computed columns, checks, triggers) works in a later process.

SQLite reports only that a function raised; the real error is parked in `context.failure`.
"""

import logging
import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from mssql_standin.contract import SessionContext, Typed
from mssql_standin.errors import BUGS, SqlError, internal
from mssql_standin.sql.literals import Constant, Invariant, constant, is_fixed, text_literal
from mssql_standin.sqltypes import SqlType, Value, parse_type

_LOG = logging.getLogger(__name__)

Kernel = Callable[..., Value]
"""`kernel(context, *values)`."""
Builder = Callable[[Sequence[str]], Kernel]

DETERMINISTIC: Final = "tsql"
VOLATILE: Final = "tsql_now"

_BUILDERS: Final[dict[str, Builder]] = {}
_KERNELS: Final[dict[str, Kernel]] = {}
_MOST_KERNELS: Final = 50_000
"""Names of ever new temporary tables must not fill the memory."""


def builder(kind: str) -> Callable[[Builder], Builder]:
    """Decorator: what makes the kernels whose specification starts with `kind`."""

    def register(build: Builder) -> Builder:
        _BUILDERS[kind] = build
        return build

    return register


def kernel(specification: str) -> Kernel:
    """The callable for a specification, made on first use."""
    found = _KERNELS.get(specification)
    if found is None:
        kind, *arguments = specification.split("|")
        if len(_KERNELS) >= _MOST_KERNELS:
            _KERNELS.clear()
        found = _KERNELS[specification] = _BUILDERS[kind](arguments)
    return found


@lru_cache(maxsize=4096)
def type_text(sql_type: SqlType) -> str:
    """A type as it stands in specifications."""
    return f"{sql_type}@{sql_type.collation}" if sql_type.collation else str(sql_type)


@lru_cache(maxsize=4096)
def read_type(text: str) -> SqlType:
    """The type that `type_text` wrote."""
    declared, _, collation = text.partition("@")
    return parse_type(declared).with_collation(collation)


def specification(kind: str, *arguments: str | SqlType) -> str:
    """Join a builder's name and arguments."""
    return "|".join((kind, *(type_text(a) if isinstance(a, SqlType) else a for a in arguments)))


def call(spec: str, arguments: Sequence[str], volatile: bool = False) -> str:
    """SQLite text of a call."""
    return f"{VOLATILE if volatile else DETERMINISTIC}({', '.join((text_literal(spec), *arguments))})"


def apply(spec: str, arguments: Sequence[Typed], returns: SqlType, nullable: bool = True) -> Typed:
    """A call of a deterministic kernel that needs no session; computed now when all arguments are constants.

    An error is left to run time: the expression may never be evaluated.
    """
    if all(isinstance(argument, Constant) for argument in arguments):
        try:
            return constant(kernel(spec)(None, *(a.value for a in arguments if isinstance(a, Constant))), returns)
        except (SqlError, *BUGS):
            pass
    text = call(spec, [argument.sql for argument in arguments])
    if any(isinstance(argument, Invariant) for argument in arguments) and all(map(is_fixed, arguments)):
        return Invariant(f"(SELECT {text})", returns, nullable)
    return Typed(text, returns, nullable)


def register_kernels(connection: sqlite3.Connection, context: SessionContext) -> None:
    """Make both functions known on a connection."""

    def run(spec: str, *values: Value) -> Value:
        try:
            return (_KERNELS.get(spec) or kernel(spec))(context, *values)
        except SqlError as error:
            context.failure = error
            raise
        except BUGS as error:
            _LOG.exception("internal error in %s", spec)
            context.failure = internal(error, spec)
            raise

    connection.create_function(DETERMINISTIC, -1, run, deterministic=True)
    connection.create_function(VOLATILE, -1, run)
    connection.create_function("tsql_float", 1, float.fromhex, deterministic=True)


def strict(function: Callable[..., Any]) -> Kernel:
    """A kernel that gives NULL for any NULL and needs no session."""

    def run(_: SessionContext, *values: Value) -> Value:
        return None if None in values else function(*values)

    return run
