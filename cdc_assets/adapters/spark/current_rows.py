"""From events to rows: the state of a table after some of its events, as a Spark data frame.

*Why it is right.* `position` orders the events of a key: a change sorts by its commit LSN, a READ at the LSN up to which its row
is surely complete. So a change that the row may lack sorts after it. A row is therefore the result
of the last event of its key; there is none if that was a deletion. An update of a key is a deletion and a creation, so
each event is about one key. Tombstones follow deletions and add nothing.

*Large values.* The log holds a `(max)`, `text`, `ntext`, `image` or `xml` value only if it was changed; else the event
has `unavailable.value.placeholder`. So the value of such a column is the newest one that is not the placeholder,
possibly from an earlier event. The first event after a deletion is a creation, which holds all values; unless a row got its key
by a change of `message.key.columns`: then the events of this key never had the value, and it stays the placeholder.

*One key.* Events that are distinguished by other columns than later ones lie in another generation, with a key of their own in the data frame
(`key@1`), or none. What a change or a deletion among them was about cannot be derived from the later key, so they are refused: the rows would
be there twice, or removed with others.

One aggregation by key, without sorting: events of one key need not fit into memory.
"""

import base64
from collections.abc import Sequence
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import expr, max_by
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.lsn import LSN_WIDTH
from cdc_assets.errors import InvalidValueError

POSITION = "__position"
"""Additional column: position of the row's last event."""
_KEY, _GONE = "__key", "__gone"
_ONE_KEY = "one key for all: the table's key columns were others, or none, before, and a row would be there twice"


def current_rows(
    events: DataFrame, unavailable: str | Sequence[str] = EventSettings("").unavailable_value
) -> DataFrame:
    """Rows that result from a table's events.

    Args:
        events: events of one topic, in any order: for each key from a READ or its creation on.
        unavailable: `unavailable.value.placeholder` of the capture; all that it has had, if it was changed.

    Returns:
        The table's columns, in the types of the events, and `__position` of each row's last event.

    Raises:
        InvalidValueError: the table has no key, or had another one, so its events do not identify rows.
    """
    events = events.where("value IS NOT NULL")
    key = _key_of(events)
    columns = events.select("value.after.*").schema
    texts = [unavailable] if isinstance(unavailable, str) else list(unavailable)
    newest = [_newest(field, texts).alias(field.name) for field in columns]
    last = [max_by(expr("value.op = 'd'"), "position").alias(_GONE), expr("max(position)").alias(POSITION)]
    by_key = events.groupBy(_required(key).alias(_KEY)).agg(*newest, *last)
    return by_key.where(f"NOT {_GONE}").drop(_KEY, _GONE)


def _key_of(events: DataFrame) -> str:
    """Name of the one key that the events have."""
    named: list[str] = [name for name in events.columns if name.partition("@")[0] == "key"]
    keys = [name for name in named if isinstance(events.schema[name].dataType, StructType)]
    if not keys:
        raise InvalidValueError(
            "events", "a topic without keys", "events with a key", "give the table one, or set message.key.columns"
        )
    if len(keys) == 1:
        return keys[0]
    [found] = events.agg(*(expr(f"max(CASE WHEN `{name}` IS NOT NULL THEN position END)") for name in keys)).collect()
    used = sorted((last, name) for last, name in zip(found, keys, strict=True) if last is not None)
    if len(used) > 1:
        of = [", ".join(cast(StructType, events.schema[name].dataType).names) for _, name in used]
        raise InvalidValueError("keys of the events", "; ".join(of), _ONE_KEY, _next_step(used[-2][0][:LSN_WIDTH]))
    return used[0][1] if used else keys[-1]


def _required(key: str) -> Column:
    """The key; an event without one fails the job, for its table had no key then."""
    text = f"keys of the events: none is not valid: expected {_ONE_KEY}. Next: {_next_step('the last of them')}."
    return expr(f"CASE WHEN `{key}` IS NOT NULL THEN `{key}` ELSE raise_error('{_quoted(text)}') END")


def _next_step(last: str) -> str:
    return f"read the mirror; or read the whole table again, after a later commit, and take the events after {last} (from_lsn, cdc/from_lsn)"


def _newest(field: StructField, unavailable: Sequence[str]) -> Column:
    """A column's value in the newest event that has one."""
    name = f"value.after.`{field.name.replace('`', '``')}`"
    if isinstance(field.dataType, StringType):
        missing = ", ".join(f"'{_quoted(form)}'" for text in unavailable for form in _forms(text))
    elif isinstance(field.dataType, BinaryType):
        missing = ", ".join(f"X'{text.encode().hex()}'" for text in unavailable)
    else:
        return max_by(expr(name), "position")
    known = (
        f"max_by(struct({name} AS value, value.op = 'd' AS gone), position) "
        f"FILTER (WHERE value.op = 'd' OR {name} IS NULL OR {name} NOT IN ({missing}))"
    )
    last = f"max_by({name}, position)"
    return expr(f"CASE WHEN coalesce(({known}).gone, true) THEN {last} ELSE ({known}).value END")


def _forms(unavailable: str) -> list[str]:
    """The placeholder of a text, and of a binary in each `binary.handling.mode` with text values."""
    raw = unavailable.encode()
    forms = [unavailable, base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), raw.hex()]
    return list(dict.fromkeys(forms))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
