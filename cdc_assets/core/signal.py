"""Signals as they arrive, and the channels from outside the log: a file, a Kafka topic, the inbox in the lake.

One manifest row for all databases records the changes that received signals make and, for each stream of messages, the
number up to which it was handled. *Crash before that row:* nothing has changed, and the same messages are received
again. *After it:* they lie below the recorded number and are skipped. A channel removes a message only after the row,
so none is lost; the result does not depend on the removal.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from cdc_assets.core.identifiers import TableId

_COMMANDS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
LONGEST_DATA = 1_000_000
"""Maximum number of characters in a signal's data, which are recorded in one row."""
_LONGEST_ID, _LONGEST_TYPE = 255, 100
"""Maximum characters kept; ids and types are only shown to people."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A request as received: three texts.

    Args:
        id: label for people; need not be unique.
        type: requested action.
        data: JSON text as received, or None; parsed once (`signals.model`).
        once: whether the id identifies this request, so that a repetition with the same id is skipped.
    """

    id: str
    type: str
    data: str | None
    once: bool = False

    @classmethod
    def arrived(cls, own_id: str, kind: str, data: str | None, *, once: bool = False) -> "Signal":
        """A signal from outside, with id and type made storable and cut to their maximum length."""
        return cls(storable(own_id)[:_LONGEST_ID], storable(kind).strip()[:_LONGEST_TYPE], data, once)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Signals of a channel that were not handled yet.

    Args:
        signals: signals in order of arrival.
        reached: by stream, the number of the next message after the last of them.
    """

    signals: tuple[Signal, ...] = ()
    reached: Mapping[str, int] = field(default_factory=dict)


class SignalChannel(Protocol):
    """A source of signals other than the signal table."""

    name: str
    """As `signal.enabled.channels` calls it; streams are named `<name>:…`."""
    lasting: bool
    """Whether streams are permanent; otherwise the state of streams that deliver nothing any more is dropped."""

    def receive(self, reached: Mapping[str, int]) -> Delivery:
        """All available signals at or after the numbers in `reached`.

        Raises:
            CdcError: the channel cannot be read now.
        """

    def forget(self, delivery: Delivery) -> None:
        """Remove the messages of a delivery; called after it was recorded.

        Raises:
            CdcError: the channel cannot be written now.
        """

    def waiting(self, reached: Mapping[str, int]) -> bool:
        """Whether there are messages at or after the numbers in `reached`; cheap, for sensors.

        Raises:
            CdcError: the channel cannot be read now.
        """


def signal_of(text: str | bytes, own_id: str, *, once: bool = False) -> Signal:
    """Parse a JSON object with `type`, `data` and optionally `id`.

    Unreadable text becomes a signal of an unknown type, which is reported and skipped.

    Args:
        text: JSON.
        own_id: id used if the object has none.
        once: see `Signal`.
    """
    try:
        entry = json.loads(text)
        data = entry.get("data") if isinstance(entry, dict) else None
        plain = data if isinstance(data, str) or data is None else json.dumps(data)
    except (ValueError, RecursionError):
        entry, plain = None, None
    if not isinstance(entry, dict):
        shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
        return Signal.arrived(own_id, shown[:100], None, once=once)
    return Signal.arrived(_word(entry.get("id")) or own_id, _word(entry.get("type")), plain, once=once)


def _word(value: object) -> str:
    """A JSON text or number as text; empty for any other value."""
    return str(value) if isinstance(value, str | int | float) else ""


def storable(text: str) -> str:
    """The text with a question mark for each lone surrogate."""
    return text.encode("utf-8", "replace").decode()


def one_line(text: str) -> str:
    """The text for a log, in which its sender begins no line of his own and commands no terminal."""
    return _COMMANDS.sub("�", text)


def signal_table(
    collections: Iterable[TableId], database: str, tables: Collection[TableId] | None = None
) -> TableId | None:
    """The signal table of a database, among its tables; letter case of its name in the settings is ignored.

    Args:
        collections: names in the settings.
        tables: tables as the server writes them; of two that differ in letter case only the one that is written as in the
            settings is meant. None takes the name of the settings.
    """
    for table in collections:
        if table.database.lower() == database.lower():
            named = replace(table, database=database)
            if tables is None or named in tables:
                return named
            return next((found for found in tables if str(found).lower() == str(named).lower()), None)
    return None


def route(database: str, databases: Sequence[str]) -> Sequence[str]:
    """Captured databases that a name of a signal means; none if that one is not captured."""
    return [name for name in databases if name.lower() == database.lower()]
