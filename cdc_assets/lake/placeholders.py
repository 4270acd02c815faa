"""Which texts a topic has in place of values that the log does not hold (`unavailable.value.placeholder`).

A placeholder looks like a value, and events with a former one stay when the setting is changed. So each Delta table of a topic names,
as a property, all that its events may have, and whoever makes rows of them takes each for a missing value. A new one is recorded
before the first event has it; a crash in between leaves a text that no event has. The default of the setting always counts, also
where nothing is recorded.
"""

import json

from cdc_assets.config.settings import EventSettings
from cdc_assets.lake.location import STORE_ERRORS
from cdc_assets.lake.tables import DeltaTables, unreadable

PLACEHOLDERS = "cdc.placeholders"
"""Name of the property: a JSON list."""
_DEFAULT = EventSettings("").unavailable_value


def placeholders(tables: DeltaTables, directory: str) -> tuple[str, ...]:
    """Texts that may mark a missing value in a table of a topic.

    Raises:
        LakeError: it cannot be read.
    """
    handle = tables.open(directory)
    found = "[]" if handle is None else handle.metadata().configuration.get(PLACEHOLDERS, "[]")
    return tuple(dict.fromkeys([_DEFAULT, *json.loads(found)]))


def note_placeholder(tables: DeltaTables, directory: str, text: str) -> None:
    """Record that events which come into a table of a topic may have a placeholder.

    Raises:
        LakeError: the store refuses.
    """
    known = placeholders(tables, directory)
    if text in known:
        return
    handle = tables.open(directory)
    assert handle is not None  # noqa: S101 - events come into a table that was made before
    try:
        handle.alter.set_table_properties(
            {PLACEHOLDERS: json.dumps([*known[1:], text], ensure_ascii=False)}, raise_if_not_exists=False
        )
    except STORE_ERRORS as error:
        raise unreadable(tables.location.uri(directory), error) from error
    finally:
        tables.forget(directory)
