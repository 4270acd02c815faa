"""Which column rules of Debezium apply to a column, and whether its values are for people (spec debezium-sqlserver §4.2, §4.6).

All patterns are anchored and ignore letter case.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from cdc_assets.config.filters import ColumnFilter, Names
from cdc_assets.config.settings import ColumnRule, EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema

_RANK = ("truncate", "mask", "hash", "hash_v2")
"""The connector looks for rules in this order of kinds, whatever the order of the file."""
PROPERTY_OF_RULE = {
    "truncate": "column.truncate.to.<length>.chars",
    "mask": "column.mask.with.<length>.chars",
    "hash": "column.mask.hash.<algorithm>.with.salt.<salt>",
    "hash_v2": "column.mask.hash.v2.<algorithm>.with.salt.<salt>",
}
"""For messages; without the salt, which is secret."""
_DIGITS = 4
"""Hex digits of a salt's digest: enough to see that there is another salt, too few to find out which one."""


def rule_for(table: TableId, column: Column, rules: Iterable[ColumnRule]) -> ColumnRule | None:
    """The mask, hash or truncation of a column, if any."""
    names = (f"{table.within_database}.{column.name}", f"{table}.{column.name}")
    ranked = sorted(rules, key=lambda rule: _RANK.index(rule.kind))
    return next((rule for rule in ranked if Names(PROPERTY_OF_RULE[rule.kind], rule.columns).match(*names)), None)


def rule_text(rule: ColumnRule) -> str:
    """What a rule makes of values, to be recorded: with another text values are shown otherwise.

    Masks of any length show nothing. Of a salt there is only what does not betray it, as it is in the values themselves.
    """
    if rule.kind == "mask":
        return rule.kind
    if rule.kind == "truncate":
        return f"{rule.kind} {rule.length}"
    digest = hashlib.sha256(f"{rule.algorithm.upper()} {rule.salt}".encode()).hexdigest()
    return f"{rule.kind} {digest[:_DIGITS]}"


def hides(table: TableId, column: str, settings: EventSettings) -> bool:
    """Whether values of a column are not for people: a rule changes them, or the filters leave it out of events."""
    by_rule = rule_for(table, Column(column, "", 0), settings.column_rules) is not None
    return by_rule or not ColumnFilter(settings).accepts(table, column)


def restricts(settings: EventSettings) -> bool:
    """Whether any column may be hidden."""
    return bool(settings.column_rules or settings.column_include or settings.column_exclude)


def without_hidden_defaults(schema: TableSchema, settings: EventSettings) -> TableSchema:
    """The structure without the default values of hidden columns.

    A default is a value as others are: in the schema of events a reader would find it in plain text, and a converter that
    replaces null by the default would write it beside the masked ones.
    """
    if not restricts(settings):
        return schema
    columns = tuple(
        replace(column, default=None)
        if column.default is not None and hides(schema.table, column.name, settings)
        else column
        for column in schema.columns
    )
    return schema if columns == schema.columns else replace(schema, columns=columns)
