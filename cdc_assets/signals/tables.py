"""Finds the tables that the expressions of a signal match.

An expression matches tables by their `database.schema.table`; if there is none, by their `schema.table`,
which is the usual form if there is only one database. A name may also be in quotes or brackets. A signal
must not stop the stream, so there is one time limit for all matching of a signal.
"""

from collections.abc import Iterable, Sequence

from cdc_assets.config.patterns import Patience, matches
from cdc_assets.core.identifiers import TableId, unquoted
from cdc_assets.errors import InvalidValueError

_MATCHING_S = 2.0
"""Time limit in seconds for matching the expressions of one signal."""
EXPECTED = "database.schema.table, or schema.table, case-sensitive"


class TableMatcher:
    """Matches the expressions of one signal with tables.

    Args:
        captured: tables that may match.
    """

    def __init__(self, captured: Iterable[TableId]) -> None:
        self._captured, self._patience = tuple(captured), Patience(_MATCHING_S)

    def of(self, pattern: str) -> Sequence[TableId]:
        """Tables that one expression matches.

        Raises:
            PatternError: matching takes too long.
        """
        names = {pattern, _unquoted(pattern)}
        return [table for table in self._captured if self._is(names, pattern, str(table))] or [
            table for table in self._captured if self._is(names, pattern, table.within_database)
        ]

    def of_all(self, patterns: Iterable[str]) -> tuple[list[TableId], list[str]]:
        """Matching tables in the order of the expressions, each once, and expressions without a match.

        Raises:
            PatternError: matching takes too long.
        """
        found, unknown = dict[TableId, None](), list[str]()
        for pattern in patterns:
            tables = self.of(pattern)
            found.update(dict.fromkeys(tables))
            unknown += [] if tables else [pattern]
        return list(found), unknown

    def texts(self, conditions: Iterable[tuple[str, str]]) -> dict[TableId, str]:
        """Text of the first expression that matches, by table.

        Raises:
            PatternError: matching takes too long.
        """
        texts: dict[TableId, str] = {}
        for pattern, text in conditions:
            for table in self.of(pattern):
                texts.setdefault(table, text)
        return texts

    def _is(self, names: set[str], pattern: str, name: str) -> bool:
        return name in names or matches(pattern, name, patience=self._patience)


def _unquoted(pattern: str) -> str:
    try:
        return unquoted(pattern)
    except InvalidValueError:
        return pattern
