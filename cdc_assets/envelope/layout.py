"""Maps the change rows of a batch to events, as row numbers (spec debezium-sqlserver §3.7, §3.8).

| rows | events |
|---|---|
| 1 | `d`, tombstone |
| 2 | `c` |
| 3, 4 with the same key | `u` |
| 3, 4 with another key | `d` of the old key, tombstone, `c` of the new key |

A layout has one entry per event. `row` is the change row whose position and key the event has: for a key change the old
key's events use the row of operation 3 and the new key's event that of operation 4, so positions stay unique and in
order.
"""

from dataclasses import dataclass

import numpy as np

from cdc_assets.kernels import Numbers

DELETE, INSERT, BEFORE, AFTER = 1, 2, 3, 4
LETTERS = np.frombuffer(b"?dcuu", dtype=np.uint8)
"""Event letter of each operation."""


@dataclass(frozen=True)
class Layout:
    """Row numbers of events; -1 means none.

    Args:
        row: change row whose position and key the event has.
        before: row of the old image.
        after: row of the new image.
        last: last change row of the event, which has its serial number.
        letter: ASCII code of the event's operation.
        tombstone: events without value.
        key_change: events that result from a change of the message key.
    """

    row: Numbers
    before: Numbers
    after: Numbers
    last: Numbers
    letter: Numbers
    tombstone: Numbers
    key_change: Numbers


def lay_out(operations: Numbers, last: Numbers, changed_key: Numbers, *, tombstones: bool) -> Layout:
    """Expand change rows into events.

    Args:
        operations: of all change rows.
        last: last change row of each event: operation 1, 2 or 4.
        changed_key: for each event, whether it is an update that changed the message key.
        tombstones: whether a delete is followed by a tombstone.
    """
    operation = operations[last]
    deletes = operation == DELETE
    parts = np.ones(len(last), dtype=np.int64)
    parts[deletes] += tombstones
    parts[changed_key] += 1 + tombstones
    event = np.repeat(np.arange(len(last)), parts)
    step = np.arange(len(event)) - np.repeat(np.cumsum(parts) - parts, parts)
    return _expanded(operation[event], last[event], changed_key[event], step, parts[event])


def _expanded(operation: Numbers, last: Numbers, changed: Numbers, step: Numbers, parts: Numbers) -> Layout:
    created = changed & (step == parts - 1)
    removed = changed & ~created
    deleted = (operation == DELETE) | removed
    tombstone = deleted & (step == 1)
    before = np.where(operation == AFTER, last - 1, np.where(operation == DELETE, last, -1))
    before[created | tombstone] = -1
    after = np.where(deleted, -1, last)
    letter = LETTERS[operation].copy()
    letter[removed], letter[created] = ord("d"), ord("c")
    return Layout(np.where(removed, last - 1, last), before, after, last, letter, tombstone, changed)


def check_pairs(operations: Numbers) -> int | None:
    """The first row that breaks the rule that every 3 is followed by a 4 and every 4 follows a 3, or None.

    The last row may be a lone 3: its 4 comes with the next batch.
    """
    is_after = operations == AFTER
    follows = np.zeros(len(operations), dtype=bool)
    follows[1:] = operations[:-1] == BEFORE
    wrong = (is_after != follows) | (operations < DELETE) | (operations > AFTER)
    return int(np.argmax(wrong)) if bool(wrong.any()) else None
