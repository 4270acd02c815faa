"""How a captured table appears in Dagster. Override a method of `CdcTranslator` to change it.

Dagster derives names of inputs, outputs and steps from keys, and allows only letters, digits and underscores; so
blanks, brackets and umlauts of names are replaced in keys, as they are in topics.
"""

import re
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from typing import Any

import dagster as dg

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema, declared_type
from cdc_assets.defs.keys import Role, table_key

_NOT_A_WORD = re.compile(r"\W+", re.ASCII)
_NOT_A_LABEL = re.compile(r"[^\w.-]+", re.ASCII)
"""Characters that Dagster does not allow in kinds."""


def word(text: str) -> str:
    """`text` with only the characters that Dagster allows in op, group, job, sensor and pool names: ASCII letters, digits, underscores."""
    return _NOT_A_WORD.sub("_", text)


class CdcTranslator:
    """Maps a captured table to the attributes of its asset specs.

    Each method gets the capture's topic prefix and the table; `role` is the
    source table, its `snapshot` (rows as READ events), its `changes`, or its mirror: the `current` rows and their
    `history`.
    """

    source = "sqlserver"
    """The database that is captured: `sqlserver`, `mysql`, `mariadb`, `postgresql`, `oracle`, …; set by the capture."""

    def asset_key(self, prefix: str, table: TableId, role: Role) -> dg.AssetKey:
        """`[prefix, database, schema, "table.role"]`; characters other than ASCII letters, digits, `_`, `.` and `-` become `_`."""
        return table_key(prefix, table, role)

    def group_name(self, prefix: str, table: TableId) -> str:
        """One group per database of a capture."""
        return f"{word(prefix)}_{word(table.database)}"

    def kinds(self, table: TableId, role: Role) -> Set[str]:
        """At most three kinds: what stores the asset, and what computes it."""
        if role == "source":
            return {_NOT_A_LABEL.sub("_", self.source)[:63]}
        return {"delta", "pyspark" if self.source == "sqlserver" else "debezium"}

    def owners(self, prefix: str, table: TableId) -> Sequence[str]:
        """Owners as e-mail addresses or `team:` names."""
        return ["team:cdc"]

    def tags(self, prefix: str, table: TableId) -> Mapping[str, str]:
        """Tags for selections, such as `tag:cdc/capture=shop`."""
        return {"cdc/capture": word(prefix), "cdc/database": word(table.database), "cdc/schema": word(table.schema)}

    def description(self, schema: TableSchema, role: Role) -> str:
        """Description on the asset page; begins with the table's name, since lists cut names and show the first words of this."""
        texts = _DESCRIPTIONS if self.source == "sqlserver" else _OF_CONNECTORS
        own = texts[role].format(table=schema.table, key=", ".join(schema.key) or "none", source=self.source)
        return f"{own}\n\n{schema.description}" if schema.description else own

    def metadata(self, schema: TableSchema, role: Role, uri: str) -> Mapping[str, Any]:
        """Metadata known before any run: the source's columns; for assets that are written, their location.

        Stored columns and where they come from are reported by each materialization.
        """
        facts: dict[str, Any] = {"dagster/table_name": str(schema.table)}
        if role == "source":
            return facts | {"dagster/column_schema": column_schema(schema)}
        return facts | {"dagster/uri": uri}

    def freshness_policy(self, prefix: str, table: TableId, role: Role) -> dg.FreshnessPolicy | None:
        """When Dagster calls the asset stale; None by default, since an asset is materialized when its table changes, and
        a quiet table is not stale."""
        return None

    def spec(
        self, prefix: str, schema: TableSchema, role: Role, uri: str, deps: Sequence[dg.AssetKey] = ()
    ) -> dg.AssetSpec:
        """The asset spec, made of all these attributes."""
        table = schema.table
        return dg.AssetSpec(
            self.asset_key(prefix, table, role),
            deps=list(deps),
            description=self.description(schema, role),
            group_name=self.group_name(prefix, table),
            kinds=set(self.kinds(table, role)),
            owners=list(self.owners(prefix, table)),
            tags=dict(self.tags(prefix, table)),
            metadata=dict(self.metadata(schema, role, uri)),
            skippable=role != "source",
            freshness_policy=self.freshness_policy(prefix, table, role),
        )


_DESCRIPTIONS: dict[Role, str] = {
    "source": "`{table}`, the table on the SQL Server, captured by change data capture. Primary key: {key}.",
    "snapshot": (
        "`{table}`: its rows as READ events. Materializing it reads the table again, a partition one range of the primary key ({key})."
    ),
    "changes": (
        "`{table}`: its committed changes as Debezium envelopes, each exactly once, in commit order. Materializing it reads what is "
        "committed when the run begins, for all tables of the capture at once. Message key: {key}."
    ),
    "current": "`{table}`: its rows in natural types, kept from its topic. Key: {key}.",
    "history": "`{table}`: former versions of its rows, each with the LSNs and times between which it was valid. Key: {key}.",
}


_OF_CONNECTORS: dict[Role, str] = {
    "source": "`{table}`, the table in a database of the kind {source}, captured by Debezium's connector. Primary key: {key}.",
    "snapshot": (
        "`{table}`: its rows as READ events. Materializing it has the connector read the table again (by a signal), and lasts "
        "until it has. Primary key: {key}."
    ),
    "changes": (
        "`{table}`: its committed changes as Debezium envelopes, each exactly once, in the connector's order. Materializing it "
        "runs the connector up to where the log ends when the run begins, for all tables of the capture at once: it reads one "
        "log. The first run also takes the connector's first snapshot. Message key: {key}."
    ),
}


def column_schema(schema: TableSchema) -> dg.TableSchema:
    """The table's columns as the server declares them, for the page of the source."""
    return _column_schema(schema, schema.descriptions)


@lru_cache(maxsize=4096)
def _column_schema(schema: TableSchema, descriptions: tuple[str | None, ...]) -> dg.TableSchema:
    del descriptions  # part of the key: structures that differ in them only are equal
    return dg.TableSchema(columns=[_column(column, column.name in schema.key) for column in schema.columns])


def _column(column: Column, in_key: bool) -> dg.TableColumn:
    constraints = dg.TableColumnConstraints(
        nullable=column.nullable, unique=False, other=["primary key"] if in_key else []
    )
    return dg.TableColumn(
        name=column.name, type=declared_type(column), description=column.description, constraints=constraints
    )
