"""Events whose key holds less than the server compares, or other columns: two rows could be one in them, or one row two.

A form may keep less of a value than the column has (`typemap.exact`), and every table of a topic has a form of its own. A table without a
key may get one by `message.key.columns` later, or another one, or lose it; each opens another table of the topic (`lake.evolution`). What such
events tell counts for nothing: a mirror begins when the whole table was read again in a form that holds every digit, and there is
none before. A mirror that is older has missed what they told, so for it changes were lost up to the last of them. (Not up to that reading:
every later one would be another loss, which a mirror that is right takes for the end of all that it knew.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from cdc_assets.core.lsn import LSN_WIDTH
from cdc_assets.core.schema import Column, declared_type
from cdc_assets.errors import ConfigurationError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.lake.events import EventFile
from cdc_assets.lake.evolution import meaning
from cdc_assets.mirror.steps import Target, window_of
from cdc_assets.typemap.exact import coarse_by, exact_setting

_NEVER = 2**62


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
    target: Target, files: Sequence[EventFile], coarse: Mapping[int, ConfigurationError], newest: int
) -> tuple[Target, tuple[EventFile, ...]]:
    """What a mirror may know, and the files that tell it, without those of shortened keys.

    Args:
        newest: number of the topic's newest table.

    Raises:
        ConfigurationError: the whole table was not read again after them, or there will be nothing else.
    """
    if not files and newest in coarse:
        raise coarse[newest]
    exact = tuple(file for file in files if file.generation not in coarse)
    if len(exact) == len(files):
        return target, exact
    read = target.read
    reading = max(
        (window_of(file, -1) for file in exact if file.least[:LSN_WIDTH] <= read <= file.greatest[:LSN_WIDTH]),
        default=-1,
    )
    shortened = [file for file in files if file.generation in coarse]
    for file in shortened:
        if (file.greatest[:LSN_WIDTH], window_of(file, _NEVER)) > (read, reading):
            raise coarse[file.generation]
    last = max(file.greatest[:LSN_WIDTH] for file in shortened)
    return replace(target, starts=tuple(sorted({*target.starts, last}))), exact
