"""From events to rows: the state of a table after some of its events, as a Spark data frame.

*Why it is right.* `position` orders the events of a key: a change sorts by its commit LSN, a READ at the LSN up to
which its row is surely complete, so that a change that the row may lack sorts after it. A row is therefore the result
of the last event of its key; there is none if that was a deletion. An update of a key is a deletion and a creation, so
each event is about one key. Tombstones follow deletions and add nothing.

*Large values.* The log holds a `(max)`, `text`, `ntext`, `image` or `xml` value only if it was changed; else the event
has `unavailable.value.placeholder`. So the value of such a column is the newest one that is not the placeholder,
possibly from an earlier event. The first event after a deletion is a creation, which holds all values; unless a row got its key
by a change of `message.key.columns`: then the events of this key never had the value, and it stays the placeholder.

One aggregation by key, without sorting: events of one key need not fit into memory.
"""

import base64
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, expr, max_by
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from cdc_assets.config.settings import EventSettings
from cdc_assets.errors import InvalidValueError

POSITION = "__position"
"""Additional column: position of the row's last event."""
_KEY, _GONE = "__key", "__gone"


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
        InvalidValueError: the table has no key, so its events do not identify rows.
    """
    if not isinstance(events.schema["key"].dataType, StructType):
        raise InvalidValueError(
            "events", "a topic without keys", "events with a key", "give the table one, or set message.key.columns"
        )
    columns = events.select("value.after.*").schema
    texts = [unavailable] if isinstance(unavailable, str) else list(unavailable)
    newest = [_newest(field, texts).alias(field.name) for field in columns]
    last = [max_by(expr("value.op = 'd'"), "position").alias(_GONE), expr("max(position)").alias(POSITION)]
    by_key = events.where("value IS NOT NULL").groupBy(col("key").alias(_KEY)).agg(*newest, *last)
    return by_key.where(f"NOT {_GONE}").drop(_KEY, _GONE)


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
