"""Requests READ events from the streaming run of rows that differ: an incremental snapshot of exactly these keys.

The key values are the server's own texts, so the condition finds the very rows, in every type and collation. A READ is
the row as it is when the snapshot reads it, so nothing is lost by what happens in between, and a READ too many changes
nothing. If a column rule hides a column of the key, or a column that identifies rows without a key, no row is named: the condition lies
in the lake until it is carried out, so whole key ranges are read again. A row that the server lacks has no READ, and an event that deletes it would not be in any log: it is removed from
the mirror only (`mirror.missing_rows`).
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from cdc_assets.config.patterns import expression_for
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import quote
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.ranges import literal, where_literally
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.reconcile.progress import Texts
from cdc_assets.signals.requests import ask, compose

MAX_KEYS = 500
"""Keys in one request; for more, their whole key ranges are read."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Rows to be read again.

    Args:
        columns: the columns of the key; without a key those that identify rows.
        keys: of the rows.
        spans: key ranges of which all rows are read.
    """

    schema: TableSchema
    columns: tuple[Column, ...]
    keys: Sequence[Texts]
    spans: Sequence[KeyRange] = ()

    @property
    def condition(self) -> str:
        """Predicate that selects the rows; empty for all rows of the table."""
        inside = [self._inside(span) for span in self.spans]
        if not all(inside):
            return ""
        return " OR ".join(f"({text})" for text in [*inside, *(self._equal(key) for key in dict.fromkeys(self.keys))])

    def _inside(self, span: KeyRange) -> str:
        if span.column is None or self.schema.column(span.column) is None:
            return ""
        return where_literally(self.schema, span)

    def _equal(self, key: Texts) -> str:
        return " AND ".join(
            f"{quote(column.name)} IS NULL" if text is None else f"{quote(column.name)} = {literal(column, text)}"
            for column, text in zip(self.columns, key, strict=True)
        )


def request(config: CaptureConfig, repair: Repair) -> None:
    """Send the request; the streaming run carries it out now or later.

    Raises:
        ConfigurationError: there is no signal table, which incremental snapshots need.
        LakeError: the lake cannot be written.
    """
    table, condition = str(repair.schema.table), repair.condition
    surrogate = "" if repair.schema.key else repair.columns[0].name
    name = expression_for(table)
    conditions = {name: condition} if condition else {}
    ask(config, compose(str(uuid.uuid4()), "execute-snapshot", [name], conditions, surrogate=surrogate))
