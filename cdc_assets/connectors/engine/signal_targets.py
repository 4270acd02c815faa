"""Whether the expressions of a signal name captured tables: a connector takes up a misspelt one, and silently reads nothing.

They are compared as the connector does: a whole `database.table` (MySQL), `schema.table` (PostgreSQL) or
`database.schema.table` (others), letter case counting, by expression or letter by letter.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdc_assets.config.engine import EngineConfig
from cdc_assets.config.patterns import Patience, PatternError, matches
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import ConfigurationError

_MATCHING_S: Final = 2.0
_MAX_SHOWN: Final = 300
_FORMS: Final[Mapping[str, str]] = {
    "mysql": "database.table",
    "mariadb": "database.table",
    "postgresql": "schema.table",
}


def identifier(config: EngineConfig, table: TableId) -> str:
    """A table as the connector names it in signals."""
    return table.within_database if config.kind == "postgresql" else str(table)


def listed(names: Sequence[str]) -> str:
    """Names as text of a bounded length."""
    text = ", ".join(names) or "none"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]} … ({len(names)} tables)"


@dataclass(frozen=True, slots=True)
class NamedTables:
    """What the expressions of one signal name.

    Args:
        known: the captured tables, as the connector names them.
        found: those among them that are named.
        unknown: expressions that name none.
        form: the pattern of a name.
    """

    known: Sequence[str]
    found: Sequence[str]
    unknown: Sequence[str]
    form: str

    @property
    def captured(self) -> str:
        """The captured tables, as text of a bounded length."""
        return listed(self.known)

    @property
    def problem(self) -> str:
        """What names nothing, and the next step; empty if everything names a table."""
        if not self.unknown:
            return ""
        return (
            f"No captured table is named by {', '.join(map(repr, self.unknown))}, so nothing is read for it; expected "
            f"{self.form}, letter case counting. Captured are: {self.captured}. Next: correct the name, and send the "
            "signal again."
        )

    def require(self) -> None:
        """Check that at least one table is named.

        Raises:
            ConfigurationError: none is.
        """
        if self.unknown and not self.found:
            raise ConfigurationError(
                "tables",
                ", ".join(self.unknown),
                f"{self.form} of a captured table, letter case counting: {self.captured}",
                "correct it; nothing was sent",
            )


def named_tables(config: EngineConfig, patterns: Sequence[str], tables: Iterable[TableId]) -> NamedTables:
    """Compare expressions with captured tables.

    Raises:
        ConfigurationError: comparing takes too long.
    """
    patience, known = Patience(_MATCHING_S), sorted(identifier(config, table) for table in tables)
    by_pattern: dict[str, list[str]] = {}
    try:
        for pattern in patterns:
            by_pattern[pattern] = [
                name for name in known if name == pattern or matches(pattern, name, patience=patience)
            ]
    except PatternError as error:
        raise ConfigurationError("tables", ", ".join(patterns), str(error), "simplify it") from None
    found = dict.fromkeys(name for names in by_pattern.values() for name in names)
    unknown = [pattern for pattern, names in by_pattern.items() if not names]
    return NamedTables(known, list(found), unknown, _FORMS.get(config.kind, "database.schema.table"))
