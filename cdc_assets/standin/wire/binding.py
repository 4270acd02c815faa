"""Declared parameters and the values that are sent for them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

from cdc_assets.standin.contract import Parameter
from cdc_assets.standin.errors import SqlError, unsupported
from cdc_assets.standin.sqltypes import (
    BINARY,
    CHARACTER,
    DECIMAL,
    INTEGER,
    SqlType,
    Value,
    decimal_from_stored,
    decimal_to_stored,
    parse_type,
)

_DECLARATION: Final = re.compile(
    r"\s*(?P<name>@[^\s,()]+)\s+(?:AS\s+)?(?P<type>.+?)(?:\s+(?P<output>OUTPUT|OUT))?(?P<readonly>\s+READONLY)?\s*\Z",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Declaration:
    """One entry of a declaration text such as `@P1 int, @P2 nvarchar(40) OUTPUT`."""

    name: str
    type: SqlType | None
    """None for a name that only the engine could resolve, an alias type: the value's own type is used."""
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
    written = found["type"].split("=")[0]
    try:
        declared = parse_type(written)
    except SqlError as error:
        if error.number != 243:
            raise
        declared = None
    return Declaration(found["name"], declared, bool(found["output"]))


def bind(text: str, declarations: Sequence[Declaration], values: Sequence[Parameter]) -> list[Parameter]:
    """The parameters of a statement: declared names and types, sent values.

    Raises:
        SqlError: 8178 for a declared parameter without value, 8144 for a value too many.
    """
    if len(values) > len(declarations):
        raise SqlError(8144, "Procedure or function has too many arguments specified.")
    if len(values) == len(declarations) and not any(value.name or value.default for value in values):
        return [_bound(declaration, value) for declaration, value in zip(declarations, values, strict=True)]
    by_name = {value.name.casefold(): value for value in values if value.name}
    bound = list[Parameter]()
    for place, declaration in enumerate(declarations):
        value = by_name.get(declaration.name.casefold())
        if value is None and place < len(values) and not _names_another(values[place], declarations):
            value = values[place]
        if value is None or value.default:
            listed = ",".join(f"{entry.name} {entry.type}" for entry in declarations)
            raise SqlError(
                8178,
                f"The parameterized query '({listed}){text}' expects the parameter '{declaration.name}', "
                "which was not supplied.",
            )
        bound.append(_bound(declaration, value))
    return bound


def _names_another(value: Parameter, declarations: Sequence[Declaration]) -> bool:
    folded = value.name.casefold()
    return bool(folded) and any(entry.name.casefold() == folded for entry in declarations)


def _bound(declaration: Declaration, value: Parameter) -> Parameter:
    declared, sent, stored = declaration.type, value.type, value.value
    if declared is not sent and declared != sent:
        if declared is None or (stored is not None and not _same_form(sent, declared)):
            declared = sent
        elif stored is not None and sent.name in DECIMAL:
            stored = _rescaled(stored, sent, declared)
    return Parameter(declaration.name, declared, stored, declaration.output and value.output)


_GROUPS: Final = (CHARACTER, BINARY, INTEGER, DECIMAL)


@lru_cache(maxsize=4096)
def _same_form(sent: SqlType, declared: SqlType) -> bool:
    """Whether a value stored as one type means the same as the other; lengths are the sender's affair."""
    return sent.name == declared.name or any(sent.name in group and declared.name in group for group in _GROUPS)


def _rescaled(value: Value, sent: SqlType, declared: SqlType) -> Value:
    if (sent.precision, sent.scale) == (declared.precision, declared.scale):
        return value
    scaled, digits = decimal_from_stored(cast(int | bytes, value)), declared.scale - sent.scale
    if digits >= 0:
        scaled *= 10**digits
    else:
        half = 10**-digits // 2
        scaled = (abs(scaled) + half) // 10**-digits * (1 if scaled >= 0 else -1)
    if abs(scaled) >= 10**declared.precision:
        raise SqlError(8115, f"Arithmetic overflow error converting {sent.name} to data type {declared.name}.")
    return decimal_to_stored(scaled, declared)
