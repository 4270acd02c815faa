"""The shape of a table's mirror, and how its topic is read: from the schema history and the topic's own schemas.

The schema history says what the source's columns are: their types, whether they may be NULL, in which collation they are
compared. The schema of each generation of the topic says in which form events hold their values. A column is NOT NULL
in the mirror if each structure of the table has it as NOT NULL, not computed and with one type. Rows that are older than an added
column have no event with its value.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cdc_assets.config.column_rules import hides
from cdc_assets.config.settings import EventSettings
from cdc_assets.core.schema import Column, declared_type
from cdc_assets.envelope.naming import adjusted
from cdc_assets.envelope.plan import ConnectorIdentity, plan_events
from cdc_assets.errors import ConfigurationError, LakeError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.lake.events import EventColumn, TopicDescription, TopicGeneration
from cdc_assets.lake.keys import KeyPart, key_part
from cdc_assets.mirror.exact_keys import coarse_tables
from cdc_assets.mirror.natural import EXACT, Conversion, Natural, is_cut, target_of
from cdc_assets.mirror.shape import OF_KEY, OWN, OWN_OF_HISTORY, Shape, ShapeColumn

_MASK = "mask"
"""Rule that gives a column one value, also where it is NULL."""


@dataclass(frozen=True)
class Description(TopicDescription):
    """What is known of a mirror before it is made."""

    shape: Shape

    def with_placeholders(self, texts: Sequence[tuple[str, ...]]) -> "Description":
        """The description with the texts that mark missing values in each generation."""
        made = [replace(one, placeholders=own) for one, own in zip(self.generations, texts, strict=True)]
        return replace(self, generations=tuple(made))


@dataclass(frozen=True, slots=True)
class _Found:
    """A column as events have it: in its newest structure and its newest generation."""

    name: str
    field: pa.Field
    column: Column | None
    large: bool
    nullable: bool


def describe(
    topic: str,
    generations: Mapping[str, pa.Schema],
    entries: Sequence[HistoryEntry],
    settings: EventSettings,
    former: Sequence[HistoryEntry] = (),
) -> Description:
    """Describe the mirror of a table.

    Args:
        generations: schema of each of the topic's tables by directory, oldest first.
        entries: structures of the table from its newest beginning on, oldest first.
        former: structures before that.

    Raises:
        ConfigurationError: events of the table do not identify their rows.
        LakeError: the topic holds no envelopes.
    """
    after = {name: _fields(_value(topic, schema), "after") for name, schema in generations.items()}
    names = _names(entries, settings) or {name: name for fields in after.values() for name in fields}
    found = [
        _found(name, field, after, entries)
        for name, field in names.items()
        if any(field in fields for fields in after.values())
    ]
    # what identifies a row: the key of events, and columns that only the key holds
    names_now = {column.name for column in found}
    key = _key_names(topic, entries, settings, generations)
    source = {name: entries[-1].schema.column(name) if entries else None for name in key}
    of_keys = [_fields(pa.struct([schema.field("key")]), "key") for schema in generations.values()]
    coarse = coarse_tables({names.get(name, name): column for name, column in source.items()}, of_keys, entries)
    hidden = {name for name in key if entries and hides(entries[-1].table, name, settings)}
    extra = _key_only(
        source, found, names, {name: field for fields in of_keys for name, field in fields.items()}, hidden
    )
    columns = [_shape_column(column) for column in found] + [_extra_column(column) for column in extra]
    # columns that the source has no longer: rows of the mirror still hold them
    taken = {name.lower() for name in names}
    for name, shown in _names(former, settings).items():
        if name.lower() not in taken and any(shown in fields for fields in after.values()):
            earlier = _found(name, shown, after, former)
            columns.append(replace(_shape_column(earlier), nullable=True, former=True))
            found.append(earlier)
            names[name] = shown
    # after all columns are known, because names may differ by letter case only
    _check(topic, [column.name for column in columns])
    known = {column.name: column.column for column in [*found, *extra]}
    own = {column.name.removeprefix(OF_KEY): column.name for column in extra}
    unsaid = _masked_gone(entries)
    identity = [own.get(name, name) for name in key] or _identity(
        [column for column in found if column.name in names_now and column.name not in unsaid]
    )
    # the log names a row without a key by the very values that the server stores, not by others that compare equal
    parts = tuple(key_part(name, known[name]) if key else KeyPart(name) for name in identity)
    own_key = not entries or bool(entries[-1].schema.key)
    shape = Shape(tuple(columns), parts, keyed=bool(key), own_key=own_key)
    made = tuple(
        _generation(directory, schema, shape, {**names, **{column.name: column.field.name for column in extra}}, known)
        for directory, schema in generations.items()
    )
    return Description(shape, made, coarse)


def _value(topic: str, schema: pa.Schema) -> pa.DataType:
    found = schema.field("value").type if "value" in schema.names else pa.null()
    if not pa.types.is_struct(found) or found.get_field_index("after") < 0:
        raise LakeError(
            f"{topic} holds no envelopes, so no table can be made of it. Next: leave it out of mirror.table.include.list."
        )
    return found


def _fields(kind: pa.DataType, name: str) -> dict[str, pa.Field]:
    """Fields of a struct in a struct by name."""
    at = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
    inner = kind.field(at).type if at >= 0 else kind
    return {field.name: field for field in inner} if at >= 0 and pa.types.is_struct(inner) else {}


def _names(entries: Sequence[HistoryEntry], settings: EventSettings) -> dict[str, str]:
    """Names of event fields by column: the newest structure's in order, then those that older ones had.

    Computed columns are left out: the log does not hold them, so only a READ could tell their values. So are older ones that another
    differs from by letter case only: a Delta table has not both, and the server has given up the values of the older one.
    """
    names: dict[str, str] = {}
    taken: dict[str, str] = {}
    for entry in reversed(entries):
        for column in (column for column in entry.columns() if not column.computed):
            if taken.setdefault(column.name.lower(), column.name) == column.name:
                names.setdefault(column.name, adjusted(column.name, settings.field_name_adjustment))
    return names


def _found(
    name: str, field: str, after: Mapping[str, Mapping[str, pa.Field]], entries: Sequence[HistoryEntry]
) -> _Found:
    newest = next(fields[field] for fields in reversed(list(after.values())) if field in fields)
    # an instance that does not capture a column holds no value of it, whatever the table has under its name by then
    columns = [next((column for column in entry.columns() if column.name == name), None) for entry in entries]
    known = [column for column in columns if column is not None]
    if not known:
        return _Found(name, newest, None, pa.types.is_string(newest.type) or pa.types.is_binary(newest.type), True)
    nullable = len(known) < len(columns) or any(column.nullable or column.computed for column in known)
    types = {declared_type(column) for column in known}
    return _Found(name, newest, known[-1], any(column.is_large for column in known), nullable or len(types) > 1)


def _key_names(
    topic: str, entries: Sequence[HistoryEntry], settings: EventSettings, generations: Mapping[str, pa.Schema]
) -> list[str]:
    """Columns that identify a row: the table's own key, which the message key must contain, or else the message key.

    So a row of which another column of the message key changes stays the same row, and keeps its large values.
    """
    if not entries:
        newest = list(generations.values())[-1]
        return list(_fields(pa.struct([newest.field("key")]), "key"))
    last = entries[-1]
    key = plan_events(last.schema, last.captured, settings, connector=ConnectorIdentity()).key
    missing = [name for name in last.schema.key if name not in key]
    if (key and missing) or (missing and not key):
        raise ConfigurationError(
            "message key", ", ".join(key), f"all columns of the key of {last.table}: {', '.join(last.schema.key)}",
            f"capture {', '.join(missing)} and name it in message.key.columns, or leave {last.table} out by mirror.table.include.list",
        )  # fmt: skip
    for name in key:
        column = last.schema.column(name)
        if column is not None and column.computed:
            raise ConfigurationError(
                "message key", name, f"columns of {last.table} that the log holds; this one is computed",
                f"name others in message.key.columns, or leave {last.table} out by mirror.table.include.list",
            )  # fmt: skip
    return list(last.schema.key or key)


def _key_only(
    key: Mapping[str, Column | None],
    found: Sequence[_Found],
    names: Mapping[str, str],
    fields: Mapping[str, pa.Field],
    hidden: Collection[str],
) -> list[_Found]:
    """Columns of the key whose values rows do not have, or have masked or cut: since the topic was made, or by the settings now."""
    shown = {column.name: column for column in found}
    extra = []
    for name, source in key.items():
        column, of_key = shown.get(name), fields.get(names.get(name, name))
        cut = source is not None and is_cut(source)
        if of_key is None or (column is not None and not (name in hidden or _is_shaped(column.field) or cut)):
            continue
        known = source if cut else column.column if column else None
        extra.append(_Found(OF_KEY + name, of_key, known, False, True))
    return extra


def _natural_of_key(field: pa.Field, column: Column | None) -> Natural:
    return EXACT if column is not None and is_cut(column) else target_of(field, column)


def _is_shaped(field: pa.Field) -> bool:
    parameters = (field.metadata or {}).get(b"connect.parameters", b"")
    return b'"masked"' in parameters or b'"truncateLength"' in parameters


def _masked_gone(entries: Sequence[HistoryEntry]) -> set[str]:
    """Columns that an instance captures and their table has no longer, if events hold a mask for them: READs have none."""
    known: dict[str, int] = {}
    gone = set[tuple[str, int]]()
    for entry in entries:
        columns = {column.name: column.ordinal for column in entry.schema.columns}
        gone |= {(name, known[name]) for name in entry.captured or () if name in known and name not in columns}
        known |= columns
    masked = {name for entry in entries for name, rule in entry.hidden or () if rule == _MASK}
    return {name for name in masked if (name, known.get(name)) in gone}


def _identity(found: Sequence[_Found]) -> list[str]:
    """Columns that tell rows of a table without a key apart: those that the log always holds."""
    held = [column.name for column in found if not column.large and not (column.column and column.column.computed)]
    return held or [column.name for column in found]


def _shape_column(found: _Found) -> ShapeColumn:
    natural = target_of(found.field, found.column)
    declared = declared_type(found.column) if found.column else ""
    comment = (found.column.description if found.column else None) or ""
    return ShapeColumn(
        found.name, natural.type, found.nullable, found.large, natural.note, found.name, declared, comment=comment
    )


def _extra_column(found: _Found) -> ShapeColumn:
    natural = _natural_of_key(found.field, found.column)
    note = natural.note if natural == EXACT else "value of the key"
    return ShapeColumn(found.name, natural.type, True, False, note, found.name.removeprefix(OF_KEY))


def _check(topic: str, names: Sequence[str]) -> None:
    taken = {*OWN, *OWN_OF_HISTORY} & {name.lower() for name in names}
    if taken:
        raise ConfigurationError(
            "column name", ", ".join(sorted(taken)), "names that a mirror does not give to its own columns",
            f"leave the table of {topic} out by mirror.table.include.list",
        )  # fmt: skip


def _generation(
    directory: str, schema: pa.Schema, shape: Shape, names: Mapping[str, str], known: Mapping[str, Column | None]
) -> TopicGeneration:
    value = schema.field("value").type
    after, key = _fields(value, "after"), _fields(pa.struct([schema.field("key")]), "key")
    parts = {part.name for part in shape.key} if shape.keyed else set()
    columns = []
    for column in shape.columns:
        in_key = column.name.startswith(OF_KEY) and column.name.removeprefix(OF_KEY) == column.source
        field = (key if in_key else after).get(names[column.name])
        if field is not None:
            wanted = replace((_natural_of_key if in_key else target_of)(field, known[column.name]), type=column.type)
            own = key.get(field.name) if column.name in parts and not in_key else None
            of_key = None if own is None else Conversion(own, wanted)
            convert = Conversion(field, wanted)
            columns.append(EventColumn(column.name, column.type, field.name, convert, in_key, of_key))
    stamp = "ts_us" if "ts_us" in _fields(value, "source") else "ts_ms"
    return TopicGeneration(directory, tuple(columns), stamp)
