"""Description of one property, and the look-up of a property by name."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from cdc_assets.config.kinds import Kind
from cdc_assets.errors import ConfigurationError

_HOLE = re.compile(r"<([a-z]+)>")
HIDDEN = "********"
"""Takes the place of a value, or part of a name, that nobody may see."""
_SALT = re.compile(r"(?<=\.salt\.)(?!<).+|(?<=column\.mask\.hash\.)(?!.*\.salt\.).+", re.IGNORECASE | re.DOTALL)
"""Of a name; if it is misspelt, all that may be one."""


class Status(StrEnum):
    """What happens when a property is given."""

    SUPPORTED = "supported"
    IGNORED = "ignored"
    """Accepted without effect; a warning names it with the reason."""
    REFUSED = "not yet supported"
    """Not supported, and ignoring it would change the result: an error."""


@dataclass(frozen=True)
class Property:
    """One row of the property table.

    Args:
        name: Debezium's name; `<hole>` stands for a part the user chooses.
        kind: kind of value, with its parser.
        default: text form of the value used when the property is absent; None if there is none.
        doc: one or two sentences in plain English.
        target: `section.field` of the settings it fills; empty if special code reads it.
        status: whether it is supported.
        reason: why it is ignored or refused.
        group: heading in the documentation.
        required: whether it must be given.
        secret: whether its value must never be shown.
        note: difference from Debezium, if any.
    """

    name: str
    kind: Kind
    default: str | None
    doc: str
    target: str = ""
    status: Status = Status.SUPPORTED
    reason: str = ""
    group: str = ""
    required: bool = False
    secret: bool = False
    note: str = ""

    @property
    def patterned(self) -> bool:
        """Whether the name has holes."""
        return "<" in self.name

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = _HOLE.split(self.name)
        literal = [re.escape(part) if index % 2 == 0 else f"(?P<{part}>.+)" for index, part in enumerate(parts)]
        return re.compile("".join(literal) + r"\Z")

    def holes(self, name: str) -> dict[str, str] | None:
        """Values of the holes in a given name, or None if the name does not fit this pattern."""
        match = self._pattern.match(name)
        return match.groupdict() if match else None

    def parse(self, text: str) -> object:
        """The value.

        Raises:
            ConfigurationError: the value is not allowed; the message does not show a secret.
        """
        try:
            return self.kind.parse(text)
        except ValueError as error:
            detail = str(error)
            expected = detail if detail.startswith("regular expression") else self.kind.allowed
            shown = HIDDEN if self.secret else text
            remedy = f"see `cdc-assets properties {self.name}`" + (f". {self.note.rstrip('.')}" if self.note else "")
            raise ConfigurationError(self.name, shown, expected, remedy) from None


def lookup(table: Iterable[Property], name: str) -> Property | None:
    """The row for a name: by exact name, else the first pattern that fits; None if there is none."""
    patterned = None
    for row in table:
        if row.name == name:
            return row
        if patterned is None and row.patterned and row.holes(name) is not None:
            patterned = row
    return patterned


def find(table: Iterable[Property], name: str) -> Property:
    """The row for a name, as `lookup` finds it.

    Raises:
        ConfigurationError: the name is unknown; the message suggests the nearest ones.
    """
    rows = list(table)
    if row := lookup(rows, name):
        return row
    near = difflib.get_close_matches(name, [row.name for row in rows], n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}" if near else "list all names with `cdc-assets properties`"
    raise ConfigurationError(
        "property", shown_name(name), "a property of Debezium's SQL Server connector or one of cdc-assets", hint
    )


def shown_name(name: str) -> str:
    """A property's name without the salt that it may hold, whoever's property it is."""
    return _SALT.sub(HIDDEN, name)
