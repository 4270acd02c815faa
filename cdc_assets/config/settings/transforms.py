"""Settings of single message transforms."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AddedField:
    """A part of an event that is copied into a row or a header.

    Args:
        struct: the envelope's struct that has it; empty for the envelope itself.
        field: its name there.
        name: its new name.
    """

    struct: str
    field: str
    name: str


@dataclass(frozen=True, slots=True)
class UnwrapSettings:
    """`ExtractNewRecordState`.

    Args:
        deletes: `delete.tombstone.handling.mode`.
        fields: added to rows.
        headers: added to headers.
        route_by: column whose value names the topic; empty for none.
        fills: whether rows that get `__deleted` have defaults in place of null.
    """

    deletes: str = "tombstone"
    fields: tuple[AddedField, ...] = ()
    headers: tuple[AddedField, ...] = ()
    route_by: str = ""
    fills: bool = True


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """`RegexRouter`.

    Args:
        pattern: expression for a topic's whole name, in Python's syntax.
        replacement: in Java's syntax.
    """

    pattern: str
    replacement: str


@dataclass(frozen=True, slots=True)
class LogicalRouteSettings:
    """`ByLogicalTableRouter`.

    Args:
        topics: new names of topics.
        key_field: field that is added to keys; empty for none.
        key_value: what it holds if it is not the old name of the topic.
        adjusts: whether names of schemas are made valid for Avro.
    """

    topics: RouteSettings
    key_field: str = ""
    key_value: RouteSettings | None = None
    adjusts: bool = False


@dataclass(frozen=True, slots=True)
class OutboxField:
    """A column of an outbox that goes along with the payload.

    Args:
        field: its name.
        placement: `envelope`, `header` or `partition`.
        name: its name there.
    """

    field: str
    placement: str
    name: str


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """`EventRouter`.

    Args:
        route: new name for what the column `route_by` holds.
        route_by: column that names the topic.
        event_id: column of the header `id`.
        event_key: column of the key.
        payload: column of the value.
        timestamp: column of the record's time; empty for that of the event.
        schema_version: column of the structure's version; empty for none.
        fields: columns that go along.
        ignores_missing: whether such a column may be missing.
        tombstones: whether an empty payload becomes a tombstone.
        invalid: `table.op.invalid.behavior`.
    """

    route: RouteSettings
    route_by: str = "aggregatetype"
    event_id: str = "id"
    event_key: str = "aggregateid"
    payload: str = "payload"
    timestamp: str = ""
    schema_version: str = ""
    fields: tuple[OutboxField, ...] = ()
    ignores_missing: bool = False
    tombstones: bool = False
    invalid: str = "warn"


@dataclass(frozen=True, slots=True)
class TimezoneRule:
    """Which events, and which of their fields.

    Args:
        kind: `topic`, `source` for a table, or empty for either.
        name: of the topic or table.
        fields: names, which may begin with `before.`, `after.` or `source.`; empty for all of rows.
    """

    kind: str
    name: str
    fields: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TimezoneSettings:
    """`TimezoneConverter`.

    Args:
        zone: name or offset.
        rules: empty for all rows.
        excludes: whether the rules say what is not converted.
    """

    zone: str
    rules: tuple[TimezoneRule, ...] = ()
    excludes: bool = False


TransformSettings = UnwrapSettings | RouteSettings | LogicalRouteSettings | OutboxSettings | TimezoneSettings


@dataclass(frozen=True, slots=True)
class Predicate:
    """Which records a transform is for.

    Args:
        pattern: expression for a topic's whole name, in Python's syntax; empty for tombstones.
        negated: whether it is for the others.
    """

    pattern: str = ""
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A transform in the chain.

    Args:
        name: as in `transforms`.
        settings: its options.
        predicate: which records it is for; None for all.
    """

    name: str
    settings: TransformSettings
    predicate: Predicate | None = None
