"""Decides which property values are masked in error messages and listings."""

import re
from collections.abc import Mapping

from cdc_assets.config.patterns import PatternError, finds
from cdc_assets.config.properties import PROPERTIES
from cdc_assets.config.property import Property, lookup
from cdc_assets.errors import ConfigurationError

PATTERN = "custom.sanitize.pattern"
HIDDEN = "********"
_SECRET = re.compile(
    r"secret$|password$|token$|sasl\.jaas\.config$|basic\.auth\.user\.info|registry\.auth\.client-secret", re.IGNORECASE
)
"""Names that denote secrets in any property, such as options of clients."""


class Masks:
    """The properties of a configuration whose values are hidden.

    These are the secrets of the property table, names that denote secrets, and names that `custom.sanitize.pattern`
    matches.

    Args:
        given: texts by property name.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._own = given.get(PATTERN, "")

    def hides(self, name: str) -> bool:
        """Whether a property's value is hidden."""
        row = _row(name)
        return bool((row and row.secret) or _SECRET.search(name) or (name != PATTERN and self._finds(name)))

    def _finds(self, name: str) -> bool:
        try:
            return bool(self._own) and finds(self._own, name, ignore_case=True)
        except PatternError:  # reported as an error elsewhere; until it is fixed, all values are masked
            return True

    def shown(self, name: str) -> str:
        """A given value, masked if necessary."""
        return HIDDEN if self._given[name] and self.hides(name) else self._given[name]

    def misses(self) -> bool:
        """Whether the pattern is given and matches neither a property of the table nor a given one."""
        names = {row.name for row in PROPERTIES if not row.patterned} | set(self._given)
        return bool(self._own) and not any(self._finds(name) for name in names - {PATTERN})

    def mask(self, error: ConfigurationError) -> ConfigurationError:
        """The error with a hidden value masked; secrets of the property table are removed where they are parsed."""
        hidden = (row for name in self._given if self.hides(name) and (row := _row(name)))
        row = next((row for row in hidden if error.what == row.name and not row.secret), None)
        if row is None:
            return error
        expected = row.kind.allowed if "does not compile" in error.expected else error.expected
        return ConfigurationError(error.what, HIDDEN, expected, error.hint)


def shown_name(name: str) -> str:
    """A property's name without a salt."""
    row = _row(name)
    salt = (row.holes(name) or {}).get("salt") if row and row.patterned else None
    return name.removesuffix(salt) + HIDDEN if salt else name


def _row(name: str) -> Property | None:
    return lookup(PROPERTIES, name)
