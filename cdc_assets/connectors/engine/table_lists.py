"""Fewer recorded lists of tables, by which the same tables were left out.

A table lacks rows if a list has left it out, and no snapshot on request has read it after that. So of lists between which no read
lies it matters only whether one of them leaves a table out: they become one, which lets through what all of them do. And a list that
leaves out no more than a later one says nothing. The newest one stays as it is, for the next is compared with it.
"""

import re
from collections.abc import Mapping, Sequence

from cdc_assets.config.engine import OVERRIDES
from cdc_assets.config.filters import Names
from cdc_assets.errors import ConfigurationError

Lists = Mapping[str, str]
"""As `EngineConfig.lists`."""
_NOTHING: Lists = {"table.exclude.list": ".*"}
_NAME = re.compile(r"(?:[A-Za-z0-9_ @.-]|\\\.)+")
_LETTER = re.compile(r"\\\.|.")
_ANY = ""
"""In place of a letter that may be any."""
_MOST = 100_000
"""Pairs of expressions that are compared; of longer lists it is not known what they have in common."""


def folded(lists: Sequence[Lists], read_at: Mapping[str, int]) -> tuple[list[Lists], dict[str, int]]:
    """Fewer lists by which the same tables lack rows, with the places of reads among them.

    Args:
        lists: oldest first.
        read_at: place of the newest list at the time of the last read of a table, by its name.
    """
    kept = list[tuple[int, Lists]]()
    for place, one in enumerate(lists[:-1]):
        if _is_understood(one):
            _add(kept, place, one, read_at)
    kept.append((len(lists) - 1, lists[-1]))
    kept = [
        (place, one)
        for number, (place, one) in enumerate(kept)
        if not any(_leaves_out_all_of(later, one) for _, later in kept[number + 1 :])
    ]
    places = {name: sum(place <= at for place, _ in kept) - 1 for name, at in read_at.items()}
    return [one for _, one in kept], {name: place for name, place in places.items() if place >= 0}


def _add(kept: list[tuple[int, Lists]], place: int, one: Lists, read_at: Mapping[str, int]) -> None:
    """Add a list; it takes up those between which and it no read lies."""
    for other in list(kept):
        if any(other[0] <= at < place for at in read_at.values()):
            continue
        both = _narrowed(other[1], one)
        if both is not None:
            kept.remove(other)
            one = both
    kept.append((place, one))


def items_of(text: str) -> list[str]:
    """The expressions of a list."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _is_understood(lists: Lists) -> bool:
    try:
        for name, text in lists.items():
            Names(name, items_of(text))
    except ConfigurationError:
        return False
    return True


def _leaves_out_all_of(later: Lists, one: Lists) -> bool:
    """Whether lists leave out, for sure, all that other ones do."""
    if not _is_understood(later):
        return False
    for name, text in one.items():
        own, others = items_of(text), items_of(later.get(name, ""))
        if later != _NOTHING and own and not (set(own) <= set(others) if _excludes(name) else _within(others, own)):
            return False
    return True


def _within(narrow: Sequence[str], wide: Sequence[str]) -> bool:
    """Whether a list lets through, for sure, only what another one does; one that is empty lets all through."""
    if set(narrow) <= set(wide):
        return bool(narrow)
    return len(narrow) * len(wide) <= _MOST and all(_common(item, wide) == [item] for item in narrow)


def _narrowed(one: Lists, other: Lists) -> Lists | None:
    """Lists that let through what both of two do; None if it is not known how to say that."""
    found = dict(one)
    for name, text in other.items():
        own, others = items_of(one.get(name, "")), items_of(text)
        if not own or not others or _excludes(name):
            found[name] = ",".join(dict.fromkeys([*own, *others]))
            continue
        if len(set(own) - set(others)) * len(others) + len(set(others) - set(own)) * len(own) > _MOST:
            return None
        ways = ([_common(item, wide) for item in narrow] for narrow, wide in ((own, others), (others, own)))
        parts = next((way for way in ways if None not in way), None)
        if parts is None:
            return None
        if not any(parts):
            return _NOTHING
        found[name] = ",".join(dict.fromkeys(item for part in parts for item in part or ()))
    return found


def _excludes(name: str) -> bool:
    return ".exclude." in name or name == OVERRIDES


def _common(item: str, wide: Sequence[str]) -> list[str] | None:
    """Expressions of what both an expression and a list let through; None if it is not known how to say that."""
    if item in wide:
        return [item]
    name = _letters(item)
    if name is None:
        return None
    others = {other: _letters(other) for other in wide}
    met = [found for other in others.values() if other is not None and (found := _met(name, other)) is not None]
    if name in met:
        return [item]
    rest = [other for other, letters in others.items() if letters is None]
    if rest and (_ANY in name or any("(?" in other for other in rest)):  # letter case may matter to it
        return None
    try:
        if rest and Names("", rest).match("".join(name)):
            return [item]
    except ConfigurationError:  # it takes too long
        return None
    return list(dict.fromkeys(map(_expression, met)))


def _letters(item: str) -> tuple[str, ...] | None:
    """The small letters of an expression that is a name, in which a point is any letter; None if it is another one."""
    if not _NAME.fullmatch(item):
        return None
    return tuple("." if one == "\\." else _ANY if one == "." else one for one in _LETTER.findall(item.lower()))


def _met(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...] | None:
    """What two names have in common; None for nothing."""
    pairs = list(zip(one, other, strict=False))
    if len(one) != len(other) or any(left != right and _ANY not in (left, right) for left, right in pairs):
        return None
    return tuple(right if left == _ANY else left for left, right in pairs)


def _expression(letters: Sequence[str]) -> str:
    return "".join("." if one == _ANY else "\\." if one == "." else one for one in letters)
