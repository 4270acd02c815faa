"""Signals as they arrive, and the channels from outside the log: a file, a Kafka topic, the inbox in the lake.

What arrives is recorded in one manifest row for all databases: what it changes,
and up to which number each stream of messages was handled. *Crash before that
row:* the same messages are received again and nothing had changed. *After it:*
they lie below the recorded number. A channel forgets a message only after the
row, so none is lost; whether it forgets it at all plays no part in what is done.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from cdc_assets.core.identifiers import TableId

_LONGEST_ID, _LONGEST_TYPE = 255, 100
"""Characters that are kept; ids and types are only told."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A request as it arrives: three texts.

    Args:
        id: for people; it may come again.
        type: what to do.
        data: JSON text, as its writer wrote it, or None; parsed once (`signals.model`).
        once: whether the id stands for this one request, so that whoever repeats it means the same.
    """

    id: str
    type: str
    data: str | None
    once: bool = False

    @classmethod
    def arrived(cls, own_id: str, kind: str, data: str | None, *, once: bool = False) -> "Signal":
        """One from outside, whose id and type can be stored and told whatever they are."""
        return cls(storable(own_id)[:_LONGEST_ID], storable(kind).strip()[:_LONGEST_TYPE], data, once)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a channel has that was not handled.

    Args:
        signals: in their order.
        reached: by stream, the number of the message behind the last of them.
    """

    signals: tuple[Signal, ...] = ()
    reached: Mapping[str, int] = field(default_factory=dict)


class SignalChannel(Protocol):
    """Where signals come from besides the signal table."""

    name: str
    """As `signal.enabled.channels` calls it; streams are named `<name>:…`."""
    lasting: bool
    """Whether streams go on for ever; otherwise those that are not delivered any more are not remembered."""

    def receive(self, reached: Mapping[str, int]) -> Delivery:
        """All signals that are there and lie behind what was reached.

        Raises:
            CdcError: the channel cannot be read now.
        """

    def forget(self, delivery: Delivery) -> None:
        """The delivery is recorded.

        Raises:
            CdcError: the channel cannot be written now.
        """

    def waiting(self, reached: Mapping[str, int]) -> bool:
        """Whether something lies behind what was reached; cheap, for sensors.

        Raises:
            CdcError: the channel cannot be read now.
        """


def signal_of(text: str | bytes, own_id: str, *, once: bool = False) -> Signal:
    """A JSON object with `type`, `data` and perhaps `id`.

    What cannot be read becomes a signal of no known type, which is told and skipped.

    Args:
        text: JSON.
        own_id: taken if it has none.
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
    """What stands where a word is expected; other JSON than a text or a number counts as nothing."""
    return str(value) if isinstance(value, str | int | float) else ""


def storable(text: str) -> str:
    """A text with a question mark for each half of a surrogate pair that stands alone."""
    return text.encode("utf-8", "replace").decode()


def signal_table(collections: Iterable[TableId], database: str) -> TableId | None:
    """The signal table of a database, whose letter case may be another in the settings."""
    for table in collections:
        if table.database.lower() == database.lower():
            return replace(table, database=database)
    return None


def route(database: str | None, databases: Sequence[str]) -> Sequence[str]:
    """Databases that a signal is for: the one it names, all if it names none, none if it is not captured."""
    if database is None:
        return databases
    return [name for name in databases if name.lower() == database.lower()]
