"""Which properties may hold a secret: one list for all kinds of captures.

Values of these properties are in no error and in no listing, and are taken out of the log of an embedded connector. They may not
be written out where Dagster would show them.
"""

import re
from collections.abc import Mapping

from cdc_assets.config.patterns import PatternError, finds
from cdc_assets.config.properties import PROPERTIES
from cdc_assets.config.property import HIDDEN, Property, lookup, shown_name
from cdc_assets.errors import ConfigurationError, has_credentials

PATTERN = "custom.sanitize.pattern"
_SECRET = re.compile(
    r"passw|passphrase|secret|token|credential|\.salt\.|private.?key|(access|account|api|sas|keystore).?key|key\.pem|jaas|"
    r"user\.?info|connection\.?string|(database|jdbc)\.(connection\.)?url|initial\.statements|grpc\.headers|"
    r"^(consumer\.override|files\.storage\.option|schema\.history\.internal\.(producer|consumer))\.",
    re.IGNORECASE,
)
"""Names that denote secrets in any property, such as options of clients, or of connectors that the table does not list."""


def denotes_secret(name: str) -> bool:
    """Whether the name of a property, of whatever program, says that its value may be a secret."""
    return _SECRET.search(name) is not None


class Masks:
    """The properties of a configuration whose values are hidden.

    These are the secrets of the property table, names that denote secrets, names that `custom.sanitize.pattern`
    matches, and addresses that hold a password.

    Args:
        given: texts by property name.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._own = given.get(PATTERN, "")

    def hides(self, name: str) -> bool:
        """Whether a property's value is hidden."""
        row = _row(name)
        named = bool((row and row.secret) or denotes_secret(name) or (name != PATTERN and self._finds(name)))
        return named or has_credentials(self._given.get(name, ""))

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
        """The error without the value of a property that is hidden; it names the property, or its row of the table."""
        about = next(filter(self.hides, self._named_by(error.what)), None)
        if about is None or error.value is None:
            return error
        row = _row(about)
        expected = row.kind.allowed if row and "does not compile" in error.expected else error.expected
        return ConfigurationError(shown_name(error.what), HIDDEN, expected, error.hint)

    def _named_by(self, what: str) -> list[str]:
        """Properties that an error is about, by the given name, or by that of the table."""
        rows = {name: _row(name) for name in self._given}
        given = [name for name, row in rows.items() if name == what or (row is not None and row.name == what)]
        return given or [what] * (_row(what) is not None)


def _row(name: str) -> Property | None:
    return lookup(PROPERTIES, name)
