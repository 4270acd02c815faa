"""Selects tables and columns by the filter settings.

Lists hold regular expressions that must match a whole name, letter case ignored. Include and exclude list of one kind
exclude each other (spec debezium-sqlserver §1.4, §4.6).
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property

from cdc_assets.config.patterns import Patience, PatternError, compiled, literal, match_any, would_match
from cdc_assets.config.settings import EventSettings, FilterSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import ConfigurationError

log = logging.getLogger(__name__)

_BUILTIN_SCHEMAS = frozenset({"cdc", "sys"})
_BUILTIN_TABLES = frozenset({"systranschemas"})


class Names:
    """A list of anchored, case-insensitive regular expressions.

    Args:
        property_name: for messages.

    Attributes:
        texts: the expressions as given.

    Raises:
        ConfigurationError: an expression does not compile.
    """

    def __init__(self, property_name: str, patterns: Sequence[str]) -> None:
        self._property_name, self.texts = property_name, tuple(patterns)
        self._literals: dict[str, int] = {}
        """Index of the first expression that is a plain name, by that name."""
        self._others: list[tuple[int, str]] = []
        for index, pattern in enumerate(self.texts):
            if (name := literal(pattern)) is not None:
                self._literals.setdefault(name, index)
                continue
            self._others.append((index, pattern))
            try:
                compiled(pattern, ignore_case=True)
            except PatternError as error:
                raise self._wrong(pattern, f"a regular expression that compiles: {error}") from None

    def __bool__(self) -> bool:
        return bool(self.texts)

    def match(self, *names: str) -> bool:
        """Whether any expression matches the whole of any name.

        Raises:
            ConfigurationError: an expression takes too long.
        """
        return self.place(*names) is not None

    def place(self, *names: str) -> int | None:
        """Index of the first expression that matches the whole of any name, or None.

        Raises:
            ConfigurationError: an expression takes too long.
        """
        ascii_names = (name.lower() for name in names if name.isascii())  # `lower` makes ASCII letters of two others
        found = [self._literals[name] for name in ascii_names if name in self._literals]
        first = min(found, default=None)
        for index, text in self._others:
            if first is not None and index > first:
                break
            if self._matches(text, names):
                return index
        return first

    def unmatched(self, names: Iterable[str], patience: Patience | None = None) -> Iterator[str]:
        """The expressions that match none of the names; those that take too long are left out, whoever uses them tells it.

        Args:
            names: iterated more than once.
            patience: limit after which no further expression is compared; None compares all.
        """
        lowered = {name.lower() for name in names if name.isascii()} if self._literals else set[str]()
        for text in self.texts:
            if patience is not None and not patience.left:
                return
            name = literal(text)
            with suppress(PatternError):
                if not (match_any(text, names) if name is None else name in lowered):
                    yield text

    def narrower(self, names: Iterable[str], patience: Patience | None = None) -> Iterator[tuple[str, str]]:
        r"""Expressions with a name that they match only if classes such as `\w`, and letter case, are taken for those of every script.

        They are those of ASCII, as in the connector; who expects more would be surprised by what a list leaves out.

        Args:
            names: iterated more than once.
            patience: see `unmatched`.
        """
        for _, text in self._others:
            if patience is not None and not patience.left:
                return
            with suppress(PatternError):
                name = next((name for name in names if would_match(text, name)), None)
                if name is not None:
                    yield text, name

    def _matches(self, text: str, names: Iterable[str]) -> bool:
        try:
            return match_any(text, names)
        except PatternError as error:
            raise self._wrong(text, f"a regular expression that matches quickly: {error}") from None

    def _wrong(self, pattern: str, expected: str) -> ConfigurationError:
        return ConfigurationError(self._property_name, pattern, expected, "correct it")


class _Switch:
    """An include list and an exclude list, at most one of them given."""

    def __init__(self, kind: str, include: Sequence[str], exclude: Sequence[str]) -> None:
        if include and exclude:
            raise ConfigurationError(
                f"{kind}.exclude.list",
                ",".join(exclude),
                f"only one of this and {kind}.include.list",
                "keep one of the two",
            )
        self.include = Names(f"{kind}.include.list", include)
        self.exclude = Names(f"{kind}.exclude.list", exclude)

    def accepts(self, *names: str) -> bool:
        return self.include.match(*names) if self.include else not self.exclude.match(*names)


class TableFilter:
    """Selects the tables of a capture.

    Raises:
        ConfigurationError: both lists of a kind are given, or an expression does not compile.
    """

    def __init__(self, settings: FilterSettings) -> None:
        self._settings = settings
        self._schemas = _Switch("schema", settings.schema_include, settings.schema_exclude)
        self._tables = _Switch("table", settings.table_include, settings.table_exclude)

    def accepts(self, table: TableId) -> bool:
        """Whether a table is captured; table lists match `schema.table`."""
        if str(table).lower() in self._settings.also:
            return True
        if self._settings.ignore_builtin and (
            table.schema.lower() in _BUILTIN_SCHEMAS or table.table.lower() in _BUILTIN_TABLES
        ):
            return False
        return self._schemas.accepts(table.schema) and self._tables.accepts(table.within_database)

    def select(self, tables: Iterable[TableId]) -> list[TableId]:
        """The captured tables in snapshot order: by item of the include list, then by name (spec debezium-sqlserver
        §2.6)."""
        chosen = [table for table in tables if self.accepts(table)]
        return sorted(chosen, key=lambda table: (self._tables.include.place(table.within_database) or 0, table))

    def require(self, tables: Iterable[TableId], *, guard_all: bool = False) -> list[TableId]:
        """Like `select`, but require a table other than signal tables, and no more tables than the guardrail allows.

        Args:
            tables: all existing tables.
            guard_all: whether the guardrail counts all of them, because the schema history records them all.

        Raises:
            ConfigurationError: no table matches (the message names some that exist), or too many match.
        """
        known = sorted(tables)
        chosen = self.select(known)
        if self.is_empty(chosen):
            names = ", ".join(table.within_database for table in known if table.schema not in _BUILTIN_SCHEMAS)
            shown = names if len(names) <= 300 else names[:300] + " …"
            raise ConfigurationError(
                "table.include.list / table.exclude.list",
                self.description,
                f"filters that match a table; the databases have: {shown or 'no user table'}",
                "correct the filters, and write tables as schema.table; or create the table and enable it with "
                "sys.sp_cdc_enable_table",
            )
        self._guard(len(known if guard_all else chosen))
        return chosen

    def check_includes(self, tables: Iterable[TableId]) -> None:
        """Check that an include list, if there is one, matches a table other than signal tables.

        Raises:
            ConfigurationError: it matches none.
        """
        known = list(tables)
        if (self._schemas.include or self._tables.include) and self.is_empty(self.select(known)):
            self.require(known)

    def is_empty(self, chosen: Iterable[TableId]) -> bool:
        """Whether the selected tables contain nothing but signal tables."""
        return all(str(table).lower() in self._settings.also for table in chosen)

    def _guard(self, found: int) -> None:
        max_tables = self._settings.max_tables
        if not max_tables or found <= max_tables:
            return
        error = ConfigurationError(
            "guardrail.collections.max",
            max_tables,
            f"at least the {found} tables that are kept in memory",
            "raise it, or narrow the filters and set schema.history.internal.store.only.captured.tables.ddl=true",
        )
        if self._settings.limit_action == "fail":
            raise error
        log.warning("%s", error)

    @cached_property
    def description(self) -> str:
        """The given lists as text."""
        parts = {
            "schema include": self._schemas.include,
            "schema exclude": self._schemas.exclude,
            "table include": self._tables.include,
            "table exclude": self._tables.exclude,
        }
        return "; ".join(f"{name} {', '.join(names.texts)}" for name, names in parts.items() if names)


class ColumnFilter:
    """Selects the columns of event values.

    Args:
        settings: how events look.

    Raises:
        ConfigurationError: both lists are given, or an expression does not compile.
    """

    def __init__(self, settings: EventSettings) -> None:
        self._columns = _Switch("column", settings.column_include, settings.column_exclude)

    def accepts(self, table: TableId, column: str) -> bool:
        """Whether values hold a column; lists match `schema.table.column` or `db.schema.table.column`."""
        return self._columns.accepts(f"{table.within_database}.{column}", f"{table}.{column}")
