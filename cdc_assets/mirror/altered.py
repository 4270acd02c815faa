"""Places of the log after which rows are others without an event: changes of a table's structure, and operations that were left out.

ALTER COLUMN converts every row on the server, with rounding or text forms of its own; a column that is dropped and added again under
its name is another one; and events from before a table got its key, or another one, do not show which of its present rows they are
about: of two rows with one `a` the deletion of one, told by (a, b), would remove both from a table with the key `a`. Rows of a table without a
key of its own or by `message.key.columns` are known by all columns but large ones: when one comes, goes or becomes large, events no longer name
the rows that were there before. The log holds none of it,
so a mirror that went on would show what the server never had. Only changes that leave every value as it is are followed: wider
integers and decimals, longer texts, texts in UTF-8 or compared in another way, more digits of a moment, integers as texts.

What windows read without some operations (`skipped.operations`) lacks events in the same way, up to where it ends.

*Columns that settings left out of events, masked, hashed or cut for a while* are a change as well, once their values are shown: rows that did
not change since have none, or others. The history tells from where on (`HistoryEntry.hidden`), or, while no event has come by the present settings,
these themselves do. A column that is left out or masked leaves every value as it is, but in tables without a key, whose rows events name by it.

After any other change the mirror stays right before it, in the structure of then, and says why. When the whole table was read again, it
continues as after lost changes: one step takes everything up to that reading, so nothing is published between the change and it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column, declared_type
from cdc_assets.envelope.plan import EXCLUDED, hidden_columns
from cdc_assets.envelope.rules import message_key
from cdc_assets.errors import MirrorError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.ledger.gaps import Skipped
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.mirror.spans import before, outside
from cdc_assets.mirror.steps import Target

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_DECIMALS = ("decimal", "numeric")
_TEXTS = ("varchar", "nvarchar")
_IN_CODE_PAGES = ("char", "varchar", "text")
_UTF8 = "_UTF8"
_COMPARISON = re.compile("_(?:CI|CS|BIN2?)(?:_|$)")
"""What follows the family in a collation's name."""
_MOMENTS = ("datetime2", "datetimeoffset")
_ALWAYS = {("real", "float"), ("date", "datetime2"), ("smalldatetime", "datetime2")}
_HIDDEN = {EXCLUDED: "left out of", "mask": "masked in", "truncate": "cut in"}
"""What becomes of columns in events, for people; else they are hashed."""
_SHOWS_NOTHING = (EXCLUDED, "mask")
_DIGITS = 20
"""Characters of a bigint."""


def with_present(entries: Sequence[HistoryEntry], settings: EventSettings, target: Target) -> list[HistoryEntry]:
    """Structures with one more, if the settings hide other columns by now, though no event has come by them yet.

    Args:
        entries: of one life of a table that is there.
        target: what was read up to now was read by the former settings.
    """
    last = entries[-1]
    hidden = hidden_columns(last.schema, last.captured, settings)
    if hidden == (last.hidden or ()):
        return list(entries)
    reached = max(str(last.lsn), target.position, target.read)
    return [*entries, replace(last, lsn=Lsn.parse(reached).next(), hidden=hidden)]


def changes(entries: Sequence[HistoryEntry], message_keys: Sequence[str]) -> list[tuple[int, str]]:
    """Numbers of the structures of one life of a table that changed rows without an event, and what they changed, for people.

    Args:
        message_keys: `message.key.columns`.
    """
    found = []
    has_message_key = bool(entries) and _has_message_key(entries[-1], message_keys)
    known: dict[str, Column] = {}
    key: frozenset[str] | None = None
    last: tuple[str, ...] = ()
    hidden: dict[str, str] = dict(next((entry.hidden for entry in entries if entry.hidden is not None), ()))
    """What earlier versions did not record was so, too."""
    dropped = set[tuple[str, int]]()
    """Columns that an instance captures and their table has no longer: NULL ever after."""
    for number, entry in enumerate(entries):
        names = frozenset(entry.schema.key)
        texts = [] if key in (None, names) else [f"its key became {', '.join(entry.schema.key) or 'none'}"]
        columns = {column.name: column for column in entry.columns() if not column.computed}
        captured = entry.captured or ()
        # rules that columns had until now, where others apply from here on
        hides = hidden if entry.hidden is None else dict(entry.hidden)
        shown = {name: rule for name in columns if (rule := hidden.get(name, "")) != hides.get(name, "")}
        hidden = {**hidden, **dict.fromkeys(columns, ""), **hides}
        dropped |= {
            (name, known[name].ordinal) for name in captured if name in known and entry.schema.column(name) is None
        }
        gone = {name for name, column in columns.items() if (name, column.ordinal) in dropped}
        lasting = [name for name in columns if name not in gone and hidden[name] != EXCLUDED]
        identity = tuple(name for name in lasting if not columns[name].is_large) or tuple(lasting)
        if key == names == frozenset() and not has_message_key:
            texts += [f"column {name} came to a table without a key" for name in identity if name not in last]
            texts += [f"column {name} {_left(name in lasting)}" for name in last if name not in identity]
            # of a masked column events name rows by the masks
            texts += [
                f"column {name} of a table without a key is {_hidden(hidden[name])}"
                for name in identity
                if name in last and name in shown and hidden[name]
            ]
        last = identity
        for column in columns.values():
            former = known.get(column.name)
            if former is not None and former.ordinal != column.ordinal:
                texts.append(f"column {column.name} was dropped and added again")
            elif former is not None and not is_exact(former, column):
                texts.append(f"column {column.name} became {_declared(column)} from {_declared(former)}")
            known[column.name] = column
        again = {name: rule for name, rule in shown.items() if rule and hidden[name] not in _SHOWS_NOTHING}
        texts += [f"column {name} is no longer {_hidden(rule)} as before" for name, rule in again.items()]
        if texts:
            found.append((number, "; ".join(texts)))
        key = names
    return found


def _has_message_key(entry: HistoryEntry, message_keys: Sequence[str]) -> bool:
    """Whether a property says what identifies rows; if it did not always, the keys of events show that (`exact_keys`)."""
    return bool(message_key(entry.table, [column.name for column in entry.columns()], message_keys))


def _hidden(rule: str) -> str:
    """What a rule does (`EventPlan.hidden`)."""
    return f"{_HIDDEN.get(rule.split()[0], 'hashed in')} events"


def _left(is_there: bool) -> str:
    return "of a table without a key became large" if is_there else "left a table without a key"


def is_exact(old: Column, new: Column) -> bool:
    """Whether the server leaves every value of a column as it is when it gets another type."""
    names = old.type_name, new.type_name
    if all(name in _IN_CODE_PAGES for name in names) and not _keeps_characters(old.collation, new.collation):
        return False
    if declared_type(old) == declared_type(new) or names in _ALWAYS:
        return True
    if old.type_name in _INTEGERS and new.type_name in _TEXTS:
        return new.length == -1 or (new.length or 0) >= _DIGITS
    if all(name in _INTEGERS for name in names):
        return _INTEGERS.index(old.type_name) <= _INTEGERS.index(new.type_name)
    if all(name in _DECIMALS for name in names):
        scales = old.scale or 0, new.scale or 0
        return scales[0] <= scales[1] and (old.precision or 0) - scales[0] <= (new.precision or 0) - scales[1]
    if names[0] == names[1] and names[0] in _MOMENTS:
        return (old.scale or 0) <= (new.scale or 0)
    if names in ((name, name) for name in (*_TEXTS, "varbinary")) or names == _TEXTS:
        lengths = [float("inf") if column.length == -1 else column.length or 0 for column in (old, new)]
        return lengths[0] <= lengths[1]
    return False


def _keeps_characters(old: str | None, new: str | None) -> bool:
    """Whether a text keeps all of its characters under another collation. Those that differ only in how they compare have one code
    page, and UTF-8 has every character; what a code page lacks becomes another character."""
    if old is None or new is None or old == new or new.endswith(_UTF8):  # None: recorded by nobody
        return True
    return _COMPARISON.split(old)[0] == _COMPARISON.split(new)[0] and not old.endswith(_UTF8)


def _declared(column: Column) -> str:
    """For people."""
    return f"{declared_type(column)} COLLATE {column.collation}" if column.collation else declared_type(column)


@dataclass(frozen=True, slots=True)
class Stop:
    """A place before which a mirror stays until its table was read again.

    Args:
        at: commit LSN from which on rows are others.
        good_by: least LSN of a reading that makes it good.
        number: number of structures that hold before it.
        why: for people.
    """

    at: str
    good_by: str
    number: int
    why: str


def stops(entries: Sequence[HistoryEntry], message_keys: Sequence[str], skipped: Sequence[Skipped]) -> list[Stop]:
    """The places of one life of a table before which its mirror stays, in order.

    Args:
        message_keys: `message.key.columns`.
        skipped: what was read without some operations.
    """
    found = [
        Stop(at := str(entries[number].lsn), at, number, f"{what}, which changed rows without an event")
        for number, what in changes(entries, message_keys)
    ]
    for one in skipped:
        at, good_by = str(one.after.next()), str(one.made_good_by)
        left_out = f"skipped.operations left out {','.join(one.operations)}"
        why = f"changes up to {one.until} were read while {left_out}, which only a reading at {good_by} or later makes good"
        number = next((stop.number for stop in found if stop.at >= at), len(entries))
        found.append(Stop(at, good_by, number, why))
    return sorted(found, key=lambda stop: stop.at)


def followed(
    topic: str, entries: Sequence[HistoryEntry], found: Sequence[Stop], target: Target, known: MirrorState
) -> tuple[list[HistoryEntry], Target, MirrorError | None]:
    """The structures that a mirror follows now, and how far; and why it goes no further until the table was read again.

    Args:
        found: see `stops`.
        known: how far the mirror has come; nothing if there is none, or it is rebuilt.
    """
    lsn, spans = known.lsn, target.spans_since(known.since)
    target = replace(target, altered=tuple(stop.at for stop in found))
    goes_over = False
    for stop in found:
        is_unread, end = stop.good_by > target.read, before(stop.at)
        if is_unread or (lsn and not goes_over and lsn < outside(end, spans)):
            capped = replace(target, position=min(target.position, end))
            return list(entries[: stop.number]), capped, _reason(topic, stop) if is_unread else None
        # from right before a change the next step goes up to the reading, over all changes in between
        goes_over = goes_over or lsn < stop.at
    return list(entries), target, None


def _reason(topic: str, stop: Stop) -> MirrorError:
    return MirrorError(
        f"The mirror of {topic} has stopped before {stop.at}: {stop.why}. Next: read the whole table again (its snapshot asset, or cdc-assets "
        "capture --table); then the mirror continues."
    )
