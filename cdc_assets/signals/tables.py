"""Which tables the expressions of a signal mean.

An expression means the tables whose `database.schema.table` it matches; if there is none, those whose `schema.table` it
matches, which is how people write them where there is one database. A name may be written in quotes or brackets too. Who
writes a signal may not stand still the stream, so all matching of one signal is bounded together.
"""

from collections.abc import Iterable, Sequence

from cdc_assets.config.patterns import Patience, matches
from cdc_assets.core.identifiers import TableId, unquoted
from cdc_assets.errors import InvalidValueError

_LOOKING_S = 2.0
"""Seconds that the expressions of one signal may take to be matched."""
EXPECTED = "database.schema.table, or schema.table, letter case counting"


class Meaning:
    """Looks tables up for one signal.

    Args:
        captured: the tables there are.
    """

    def __init__(self, captured: Iterable[TableId]) -> None:
        self._captured, self._patience = tuple(captured), Patience(_LOOKING_S)

    def of(self, pattern: str) -> Sequence[TableId]:
        """Tables that one expression means.

        Raises:
            PatternError: looking takes too long.
        """
        names = {pattern, _bare(pattern)}
        return [table for table in self._captured if self._is(names, pattern, str(table))] or [
            table for table in self._captured if self._is(names, pattern, table.within_database)
        ]

    def of_all(self, patterns: Iterable[str]) -> tuple[list[TableId], list[str]]:
        """Tables in the order of the expressions, each once, and the expressions that mean none.

        Raises:
            PatternError: looking takes too long.
        """
        found, unknown = dict[TableId, None](), list[str]()
        for pattern in patterns:
            own = self.of(pattern)
            found.update(dict.fromkeys(own))
            unknown += [] if own else [pattern]
        return list(found), unknown

    def texts(self, conditions: Iterable[tuple[str, str]]) -> dict[TableId, str]:
        """By table, the text of the first expression that means it.

        Raises:
            PatternError: looking takes too long.
        """
        texts: dict[TableId, str] = {}
        for pattern, text in conditions:
            for table in self.of(pattern):
                texts.setdefault(table, text)
        return texts

    def _is(self, names: set[str], pattern: str, name: str) -> bool:
        return name in names or matches(pattern, name, patience=self._patience)


def _bare(pattern: str) -> str:
    try:
        return unquoted(pattern)
    except InvalidValueError:
        return pattern
