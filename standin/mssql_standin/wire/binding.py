"""Declared parameters and the values that are sent for them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mssql_standin.contract import Parameter
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.sql.convert import convert_argument
from mssql_standin.sqltypes import SqlType, parse_type

TypeNamed = Callable[[str, int], SqlType]
"""The type of a parameter by its name, alias types included, and the parameter's number."""

_DECLARATION: Final = re.compile(
    r"\s*(?P<name>@[^\s,()]+)\s+(?:AS\s+)?(?P<type>.+?)(?:\s+(?P<output>OUTPUT|OUT))?(?P<readonly>\s+READONLY)?\s*\Z",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Declaration:
    """One entry of a declaration text such as `@P1 int, @P2 nvarchar(40) OUTPUT`."""

    name: str
    written: str
    """The type as it is written."""
    type: SqlType | None
    """None for a name that only the engine can resolve, an alias type."""
    output: bool


@lru_cache(maxsize=4096)
def read_declarations(text: str) -> tuple[Declaration, ...]:
    """Parse a declaration text.

    Raises:
        SqlError: 102 for what is not a declaration.
    """
    return tuple(_declaration(part) for part in _split(text)) if text.strip() else ()


def _split(text: str) -> list[str]:
    """Parts between commas outside parentheses."""
    parts, depth, start = list[str](), 0, 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


def _declaration(text: str) -> Declaration:
    found = _DECLARATION.match(text)
    if not found:
        raise SqlError(102, f"Incorrect syntax near '{text.strip()}'.", 15)
    if found["readonly"]:
        raise unsupported(f"table-valued parameter {found['name']}")
    written = found["type"].split("=")[0].strip()
    try:
        declared = parse_type(written)
    except SqlError as error:
        if error.number not in (102, 243):  # neither a type of the system nor, perhaps, one at all
            raise
        declared = None
    return Declaration(found["name"], written, declared, bool(found["output"]))


def bind(
    text: str, declarations: Sequence[Declaration], values: Sequence[Parameter], type_named: TypeNamed
) -> list[Parameter]:
    """The parameters of a statement: declared names and types, and the sent values converted to them.

    Raises:
        SqlError: 8178 for a declared parameter without value, 8144 for a value too many, 8114, 257 or 206 for a value that
            does not convert, 2715 for a type that nobody knows.
    """
    if len(values) > len(declarations):
        raise SqlError(8144, "Procedure or function has too many arguments specified.")
    if len(values) == len(declarations) and not any(value.name or value.default for value in values):
        pairs = enumerate(zip(declarations, values, strict=True), start=1)
        return [_bound(declaration, value, number, type_named) for number, (declaration, value) in pairs]
    by_name = {value.name.casefold(): value for value in values if value.name}
    bound = list[Parameter]()
    for place, declaration in enumerate(declarations):
        value = by_name.get(declaration.name.casefold())
        if value is None and place < len(values) and not _names_another(values[place], declarations):
            value = values[place]
        if value is None or value.default:
            listed = ",".join(f"{entry.name} {entry.written}" for entry in declarations)
            raise SqlError(
                8178,
                f"The parameterized query '({listed}){text}' expects the parameter '{declaration.name}', "
                "which was not supplied.",
            )
        bound.append(_bound(declaration, value, place + 1, type_named))
    return bound


def _names_another(value: Parameter, declarations: Sequence[Declaration]) -> bool:
    folded = value.name.casefold()
    return bool(folded) and any(entry.name.casefold() == folded for entry in declarations)


def _bound(declaration: Declaration, value: Parameter, number: int, type_named: TypeNamed) -> Parameter:
    """The parameter in its declared type, into which the value is converted; a sql_variant holds the value as it was sent."""
    declared = declaration.type or type_named(declaration.written, number)
    if declared.name == "sql_variant" and value.value is not None:
        declared = value.type
    stored = convert_argument(value.value, value.type, declared)
    return Parameter(declaration.name, declared, stored, declaration.output and value.output)
