"""The scalar functions a T-SQL expression may call, by name.

Other rooms add theirs with `define` at import time, dotted names included
(`sys.fn_cdc_get_max_lsn`). An implementation works on stored values; what it must know of
the place that calls it (argument types, result type, database prefix) comes in a `Call`.

A compiled call reaches Python through one SQLite function per determinism class, whose
first argument is a *specification text* such as `len|nvarchar(30)|>int`. The text carries
everything, so SQLite text that was stored (a computed column, a check) works in a later process.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mssql_standin.catalog import fold
from mssql_standin.contract import SessionContext
from mssql_standin.errors import SqlError
from mssql_standin.sql.collation import register_collations
from mssql_standin.sql.kernels import family
from mssql_standin.sql.runtime import Kernel, builder, read_type, register_kernels
from mssql_standin.sqltypes import SqlType, Value


@dataclass(frozen=True, slots=True)
class Call:
    """One place that calls a function.

    Args:
        types: of the arguments, in order.
        returns: type of the result.
        database: prefix as written (`db` in `db.sys.fn_x()`), empty when there was none.
    """

    types: tuple[SqlType, ...]
    returns: SqlType
    database: str = ""


Rule = Callable[[Sequence[SqlType]], SqlType]
"""Result type from argument types."""

Implementation = Callable[..., Value]
"""`implementation(call, *values)`, or `implementation(context, call, *values)` when it needs the session."""


@dataclass(frozen=True, slots=True)
class Function:
    """A defined scalar function."""

    name: str
    returns: SqlType | Rule
    minimum: int
    maximum: int
    implementation: Implementation
    needs_context: bool = False
    deterministic: bool = True
    strict: bool = True
    """NULL in any argument gives NULL without a call."""
    nullable: bool = True
    per_row: bool = False
    """A new value in every row (NEWID); other volatile functions have one value per statement."""
    arguments: tuple[SqlType | None, ...] = ()
    """Types to which arguments are converted first; None leaves one as it is; the last entry repeats."""

    accepts: tuple[frozenset[str] | None, ...] = ()
    """Families of types that an argument may have after that, else error 8116; None takes any; the last entry repeats."""

    def check(self, place: int, sql_type: SqlType) -> None:
        """Refuse an argument of a type that the function does not take.

        Raises:
            SqlError: 8116.
        """
        accepted = self.accepts[min(place, len(self.accepts) - 1)] if self.accepts else None
        if accepted is not None and family(sql_type) not in accepted:
            raise SqlError(
                8116,
                f"Argument data type {sql_type.name} is invalid for argument {place + 1} of {self.name.lower()} function.",
            )

    def result(self, types: Sequence[SqlType]) -> SqlType:
        """Type of the result for these argument types."""
        return self.returns if isinstance(self.returns, SqlType) else self.returns(types)


_FUNCTIONS: Final[dict[str, Function]] = {}

NUMBERS: Final = frozenset({"integer", "exact", "float", "text"})
"""What functions over numbers take; a text is read as float."""


def define(
    name: str,
    returns: SqlType | Rule,
    minimum: int,
    maximum: int,
    implementation: Implementation,
    needs_context: bool = False,
    *,
    deterministic: bool | None = None,
    strict: bool = True,
    nullable: bool = True,
    per_row: bool = False,
    arguments: Sequence[SqlType | None] = (),
    accepts: Sequence[frozenset[str] | None] = (),
) -> None:
    """Make a scalar function known to the compiler.

    Args:
        name: as called, without database prefix; letter case does not matter. May hold a schema (`sys.fn_x`).
        returns: result type, or a rule that computes it from the argument types.
        minimum: least number of arguments (fewer or more than allowed is error 174).
        maximum: largest number of arguments; -1 means any number.
        implementation: see `Implementation`; raise `SqlError` to fail the statement.
        needs_context: pass the `SessionContext` of the connection first.
        deterministic: same arguments, same result for the whole statement; default: not `needs_context`.
        strict: NULL in, NULL out, without a call.
        nullable: whether the result can be NULL for non-NULL arguments.
        per_row: a volatile function that is called anew for every row, even without arguments.
        arguments: types to which arguments are converted implicitly before the call; None: as it is.
        accepts: families of types (`kernels.family`) that arguments may have then; None: any.
    """
    _FUNCTIONS[fold(name)] = Function(
        name, returns, minimum, maximum, implementation, needs_context,
        not needs_context if deterministic is None else deterministic, strict, nullable, per_row, tuple(arguments),
        tuple(accepts),
    )  # fmt: skip


def find(name: str) -> Function | None:
    """The function of that name, or None."""
    return _FUNCTIONS.get(fold(name))


@builder("f")
def _build_function(arguments: Sequence[str]) -> Kernel:
    name, database, returns, *types = arguments
    function = _FUNCTIONS[name]
    call = Call(tuple(map(read_type, types)), read_type(returns), database)
    implementation = function.implementation
    if function.needs_context:

        def run(context: SessionContext, *values: Value) -> Value:
            return None if function.strict and None in values else implementation(context, call, *values)
    else:

        def run(context: SessionContext, *values: Value) -> Value:
            return None if function.strict and None in values else implementation(call, *values)

    return run


def register_functions(connection: sqlite3.Connection, context: SessionContext) -> None:
    """Register every SQLite function, aggregate and collation that compiled text uses.

    Args:
        connection: each connection needs its own registration (spec standin §11 no. 18).
        context: of the session on that connection; errors are parked in `context.failure`.
    """
    from mssql_standin.sql.functions.aggregates import register_aggregates

    register_kernels(connection, context)
    register_collations(connection)
    register_aggregates(connection, context)
