"""Events whose key holds less than the server compares, or other columns: two rows could be one in them, or one row two.

A form may keep less of a value than the column has (`typemap.exact`), and every table of a topic has a form of its own. A table without a
key may get one by `message.key.columns` later, or another one, or lose it; each opens another table of the topic (`lake.evolution`). What such
events tell counts for nothing: a mirror begins when the whole table was read again in a form that holds every digit, and there is
none before. A mirror that is older has missed what they told, so for it changes were lost up to the last of them. (Not up to that reading:
every later one would be another loss, which a mirror that is right takes for the end of all that it knew.)

*Where such events end* is decided by positions, not by files: what joins files leaves none of their names, and a reading may have the LSN of
the last of these events. It sorts after every change of that LSN, and contains them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from cdc_assets.core.lsn import LSN_WIDTH
from cdc_assets.core.schema import Column, declared_type
from cdc_assets.envelope.reads import first_read
from cdc_assets.errors import ConfigurationError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.lake.events import EventFile
from cdc_assets.lake.evolution import meaning
from cdc_assets.lake.reading import PLACED
from cdc_assets.mirror.steps import Target
from cdc_assets.typemap.exact import coarse_by, exact_setting

_AFTER_LSN = "~"
"""Sorts after everything of an LSN."""


def coarse_tables(
    key: Mapping[str, Column | None], fields: Sequence[Mapping[str, pa.Field]], entries: Sequence[HistoryEntry]
) -> dict[int, ConfigurationError]:
    """Numbers of a topic's tables whose events shorten the key, and why there is no mirror of them.

    Args:
        key: columns by the names of their fields.
        fields: of the keys of each table of the topic, oldest first.
        entries: structures of the source table.
    """
    had_key = any(entry.schema.key for entry in entries)  # then its structures say when it got one (`altered`)
    if entries and not (key or had_key or fields[-1]):
        return {number: _keyed(entries[-1]) for number, known in enumerate(fields) if known}
    found = {}
    by_property = (
        bool(entries) and not entries[-1].schema.key
    )  # else its structures say when its key changed (`altered`)
    for number, known in enumerate(fields):
        if by_property and key and known.keys() != key.keys():
            found[number] = _otherwise_keyed(list(key), list(known), entries[-1])
            continue
        for name, column in key.items():
            if column is not None and name in known and (setting := coarse_by(column, known[name])):
                found[number] = _refusal(setting, known[name], column, entries[-1])
    return found


def _otherwise_keyed(key: Sequence[str], former: Sequence[str], entry: HistoryEntry) -> ConfigurationError:
    return ConfigurationError(
        "message.key.columns", ", ".join(key), f"the columns that identify all events of {entry.table}; the key of earlier ones "
        f"has {', '.join(former) or 'none'}, so they do not identify their rows", _read_again(entry),
    )  # fmt: skip


def _keyed(entry: HistoryEntry) -> ConfigurationError:
    return ConfigurationError(
        "message.key.columns", None, f"the key columns that identified events of {entry.table}: without a key, READs and changes "
        "of one row may be two rows", _read_again(entry),
    )  # fmt: skip


def _read_again(entry: HistoryEntry) -> str:
    return (
        f"read the table again (cdc-assets capture --table {entry.table.within_database}), or leave it out by "
        "mirror.table.include.list"
    )


def _refusal(setting: str, field: pa.Field, column: Column, entry: HistoryEntry) -> ConfigurationError:
    return ConfigurationError(
        setting, meaning(field) or str(field.type),
        f"a form that holds every digit of key column {column.name} of {entry.table} ({declared_type(column)}), so that no two rows "
        "share a key",
        f"set {exact_setting(column)} and {_read_again(entry)}",
    )  # fmt: skip


def exact_files(
    target: Target,
    files: Sequence[EventFile],
    coarse: Mapping[int, ConfigurationError],
    newest: int,
    newest_in: Callable[[EventFile, str], str],
) -> tuple[Target, tuple[EventFile, ...]]:
    """What a mirror may know, and the files that tell it, without those of shortened keys.

    Args:
        newest: number of the topic's newest table.
        newest_in: the greatest position of a file up to another one, by its rows; empty if there is none.

    Raises:
        ConfigurationError: the whole table was not read again after them, or there will be nothing else.
        LakeError: a file cannot be read.
    """
    if not files and newest in coarse:
        raise coarse[newest]
    exact = tuple(file for file in files if file.generation not in coarse)
    if len(exact) == len(files):
        return target, exact
    begin, last = _begin(target, exact, newest_in), ""
    for file in files:
        if file.generation in coarse:
            end = _end(file, target.read, begin, newest_in)
            if end and end >= begin:
                raise coarse[file.generation]
            last = max(last, end[:LSN_WIDTH])
    return replace(target, starts=tuple(sorted({*target.starts, *([last] if last else [])}))), exact


def _begin(target: Target, exact: Sequence[EventFile], newest_in: Callable[[EventFile, str], str]) -> str:
    """The position before which events say nothing since the whole table was read again; empty if it never was.

    An earlier version did not record which READs of an LSN are of that reading: the newest are.
    """
    read = target.read
    if target.reads != first_read(read, None):
        return target.reads
    straddling = [file for file in exact if file.least[:LSN_WIDTH] <= read <= file.greatest[:LSN_WIDTH]]
    newest = max((newest_in(file, read + _AFTER_LSN) for file in straddling), default="")
    return max(newest[: len(target.reads)], target.reads)


def _end(file: EventFile, read: str, begin: str, newest_in: Callable[[EventFile, str], str]) -> str:
    """The greatest position of a file: as Delta's log tells it, if that decides, for other programs that join files may cut it."""
    greatest = file.greatest
    is_sure = greatest < begin or greatest[:LSN_WIDTH] > read
    return greatest if is_sure and re.match(PLACED, greatest) else newest_in(file, _AFTER_LSN)
