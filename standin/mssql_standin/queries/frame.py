"""Variables of a batch, or of a text run by EXEC or sp_executesql."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from mssql_standin.catalog import Table, fold
from mssql_standin.contract import Parameter
from mssql_standin.errors import SqlError, undeclared_variable
from mssql_standin.sqltypes import MAX, SqlType, Value


@dataclass(slots=True)
class Variable:
    """A declared variable."""

    type: SqlType
    value: Value = None


@dataclass(slots=True)
class Frame:
    """One scope of variables."""

    variables: dict[str, Variable] = field(default_factory=dict)
    """folded name without `@` → variable."""
    tables: dict[str, Table] = field(default_factory=dict)
    """folded name with `@` → table variable."""
    signature: tuple[tuple[str, object], ...] = ()
    """Names and types, part of the key of compiled plans."""
    temporary: list[str] = field(default_factory=list)
    """Temporary tables that end with this frame."""
    depth: int = 0
    procedure: str = ""
    """The user procedure whose body runs in it."""

    @classmethod
    def of(cls, parameters: Sequence[Parameter], depth: int, text: str) -> "Frame":
        """The frame of a text with parameters.

        Raises:
            SqlError: 134 when two have the same name.
        """
        kind = widened if hides_lengths(text) else _as_declared
        keys = [variable_key(parameter.name) for parameter in parameters]
        variables = {
            key: Variable(kind(parameter.type), parameter.value)
            for key, parameter in zip(keys, parameters, strict=True)
        }
        if len(variables) < len(keys):
            raise taken(next(p.name for place, p in enumerate(parameters) if keys[place] in keys[:place]))
        return cls(variables, signature=tuple((key, variables[key].type) for key in keys), depth=depth)

    def declare(self, name: str, sql_type: SqlType, value: Value = None) -> None:
        """Declare a variable.

        Raises:
            SqlError: 134 when the name is taken.
        """
        key = variable_key(name)
        if key in self.variables or fold(name) in self.tables:
            raise taken(name)
        self.variables[key] = Variable(sql_type, value)
        self.signature = (*self.signature, (key, sql_type))

    def declare_table(self, name: str, table: Table) -> None:
        """Declare a table variable.

        Raises:
            SqlError: 134 when the name is taken.
        """
        if fold(name) in self.tables or variable_key(name) in self.variables:
            raise taken(name)
        self.tables[fold(name)] = table
        self.signature = (*self.signature, (fold(name), table.object_id))

    def variable(self, name: str) -> Variable:
        """The variable; error 137 if it is not declared."""
        found = self.variables.get(variable_key(name))
        if found is None:
            raise undeclared_variable(name)
        return found

    def values(self, names: list[str]) -> dict[str, Value]:
        """Parameters of a compiled statement."""
        return {name: self.variables[name].value for name in names}


@lru_cache(maxsize=4096)
def variable_key(name: str) -> str:
    """The key of a variable: folded, without `@`."""
    return fold(name.removeprefix("@"))


_CHANGE: Final = re.compile(r"\s*(?:INSERT|UPDATE|DELETE|MERGE)\b", re.IGNORECASE)
_SHOWS_LENGTH: Final = re.compile(
    r"\b(?:SELECT|OUTPUT|ISNULL|EXEC|EXECUTE|DECLARE|SET\s+@)\b|@[\w@#$]+\s*[-+*/%&|^]?=", re.IGNORECASE
)


@lru_cache(maxsize=4096)
def hides_lengths(text: str) -> bool:
    """Whether the declared lengths of parameters can make no difference to a text: it only changes rows, sends none, assigns
    no variable, and has no ISNULL, which cuts its second argument to the length of the first."""
    return bool(_CHANGE.match(text)) and not _SHOWS_LENGTH.search(text)


@lru_cache(maxsize=1024)
def widened(sql_type: SqlType) -> SqlType:
    """A parameter's type with its length rounded up, so that values of many lengths share a plan: ODBC declares a length of its
    own for every value (spec standin §4)."""
    if sql_type.name in ("nvarchar", "varchar", "varbinary") and sql_type.length != MAX:
        most = 4000 if sql_type.name == "nvarchar" else 8000
        return replace(sql_type, length=most)
    return sql_type


def _as_declared(sql_type: SqlType) -> SqlType:
    return sql_type


def taken(name: str) -> SqlError:
    """134."""
    return SqlError(
        134,
        f"The variable name '{name}' has already been declared. Variable names must be unique within a query batch or stored "
        "procedure.",
        15,
    )
