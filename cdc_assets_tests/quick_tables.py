"""Delta tables of one process, as quickly as they can be: commits and logs are Python values, and JSON files for everybody else.

`QuickTable` answers what the product asks of `deltalake.DeltaTable`. Its logs are Delta's own, so any other reader finds them in the
folder, and what others commit there is read. It does itself what is done often: open, refresh, commit files, list files and numbers.
Everything else, such as a new table, a new column, a checkpoint or rows, is delta-rs's work at the same version.

It writes no checkpoints, so no log is shortened.

Only for tests that play thousands of commits and ask other questions than whether delta-rs works. `contract/test_quick_tables` holds it
against delta-rs, conflicts of two writers included.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from threading import Lock
from types import ModuleType
from typing import Any, Self

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

import cdc_assets

_FILE = "file://"


@dataclass(frozen=True)
class _Version:
    """A table at one version."""

    number: int = -1
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    """Files with rows that the commit removed."""

    def after(self, actions: Sequence[Mapping[str, Any]]) -> "_Version":
        """The version that a commit makes of it."""
        files, transactions = dict(self.files), dict(self.transactions)
        metadata, protocol, gone = self.metadata, self.protocol, set[str]()
        for action in actions:
            if (remove := action.get("remove")) is not None:
                files.pop(remove["path"], None)
                gone |= {remove["path"]} if remove["dataChange"] else set()
        for action in actions:
            if (add := action.get("add")) is not None:
                files[add["path"]] = add
            if (transaction := action.get("txn")) is not None:
                transactions[transaction["appId"]] = transaction["version"]
            metadata, protocol = action.get("metaData", metadata), action.get("protocol", protocol)
        return _Version(self.number + 1, files, transactions, metadata, protocol, frozenset(gone))

    @cached_property
    def schema(self) -> Schema:
        return Schema.from_json(self.metadata["schemaString"])

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        return dict(_leaves("", pa.struct(list(pa.schema(self.schema.to_arrow())))))

    @cached_property
    def actions(self) -> pa.Table:
        """As delta-rs lists files, flattened."""
        rows = list(self.files.values())
        told = [json.loads(row.get("stats") or "{}") for row in rows]
        columns: dict[str, pa.Array] = {
            "path": pa.array([row["path"] for row in rows], pa.string()),
            "size_bytes": pa.array([row["size"] for row in rows], pa.int64()),
            "modification_time": pa.array([row["modificationTime"] for row in rows], pa.int64()),
            "num_records": pa.array([one.get("numRecords") for one in told], pa.int64()),
        }
        for name, key in (("null_count", "nullCount"), ("min", "minValues"), ("max", "maxValues")):
            found = [dict(_values("", one.get(key) or {})) for one in told]
            for leaf in dict.fromkeys(leaf for one in found for leaf in one):
                kind = pa.int64() if name == "null_count" else self._types[leaf]
                columns[f"{name}.{leaf}"] = pa.array([one.get(leaf) for one in found]).cast(kind)
        return pa.table(columns)


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    for number in range(kind.num_fields):
        part = kind.field(number)
        if pa.types.is_struct(part.type):
            yield from _leaves(f"{path}{part.name}.", part.type)
        else:
            yield f"{path}{part.name}", part.type


def _values(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _values(f"{path}{name}.", value)
        else:
            yield f"{path}{name}", value


_ONE_AT_A_TIME = Lock()
"""A commit that another thread has only begun to write is empty."""


class _Log:
    """The log of a table, as far as this process has read it.

    Args:
        folder: `_delta_log`.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._identity = -1
        self._changed = -1
        self.versions: list[_Version] = []

    def path(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.json"

    def newest(self) -> _Version:
        """The table now.

        Raises:
            TableNotFoundError: there is none.
            DeltaError: a commit is missing or cut off.
        """
        with _ONE_AT_A_TIME:
            return self._newest()

    def _newest(self) -> _Version:
        try:
            about = Path(self._folder).stat()
            identity, changed = about.st_ino, about.st_mtime_ns
        except FileNotFoundError:
            identity, changed = -1, -1
        if changed not in (-1, self._changed):
            self._require_all()
        self._changed = changed
        if identity != self._identity or not (self.versions and Path(self.path(len(self.versions) - 1)).exists()):
            self._identity, self.versions = identity, []
        while (actions := self._read(len(self.versions))) is not None:
            self.versions.append((self.versions[-1] if self.versions else _Version()).after(actions))
        if not self.versions:
            raise TableNotFoundError(f"no log in {self._folder}")
        return self.versions[-1]

    def _require_all(self) -> None:
        numbers = sorted(int(path.stem) for path in Path(self._folder).glob("*.json") if path.stem.isdigit())
        if numbers and len(numbers) <= numbers[-1] - numbers[0]:
            raise DeltaError("Expected contiguous commit files, but found gap")

    def _read(self, number: int) -> list[dict[str, Any]] | None:
        try:
            text = Path(self.path(number)).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return [json.loads(line) for line in text.splitlines()]
        except ValueError as error:
            raise DeltaError(f"Json error: {error}") from error

    def write(self, base: _Version, actions: Sequence[Mapping[str, Any]]) -> _Version:
        """Commit after a version; FileExistsError if another commit did."""
        text = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions)
        with _ONE_AT_A_TIME:
            with Path(self.path(base.number + 1)).open("x", encoding="utf-8") as file:
                file.write(text)
            return self._newest()


_LOGS: dict[str, _Log] = {}


@dataclass(frozen=True)
class _Metadata:
    """What delta-rs tells of a table."""

    id: str
    configuration: dict[str, str]
    created_time: int | None
    partition_columns: list[str]
    name: str | None = None


@dataclass(frozen=True)
class _Protocol:
    min_reader_version: int
    min_writer_version: int
    writer_features: list[str] | None
    reader_features: list[str] | None


class QuickTable:
    """A handle, at one version."""

    def __init__(
        self, table_uri: str, version: int | None = None, storage_options: Mapping[str, str] | None = None
    ) -> None:
        del storage_options
        self.table_uri = table_uri
        folder = f"{table_uri.removeprefix(_FILE)}/_delta_log"
        self._log = _LOGS.setdefault(folder, _Log(folder))
        newest = self._log.newest()
        self._at = newest if version is None else self._log.versions[version]

    @classmethod
    def create(cls, table_uri: str, **named: Any) -> Self:
        DeltaTable.create(table_uri, **named)
        return cls(table_uri)

    @property
    def _real(self) -> DeltaTable:
        return DeltaTable(self.table_uri, version=self._at.number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @property
    def alter(self) -> "_Alterer":
        return _Alterer(self)

    def version(self) -> int:
        return self._at.number

    def schema(self) -> Schema:
        return self._at.schema

    def metadata(self) -> _Metadata:
        found = self._at.metadata
        return _Metadata(
            found["id"],
            dict(found["configuration"]),
            found.get("createdTime"),
            list(found["partitionColumns"]),
            found.get("name"),
        )

    def protocol(self) -> _Protocol:
        found = self._at.protocol
        return _Protocol(
            found["minReaderVersion"],
            found["minWriterVersion"],
            found.get("writerFeatures"),
            found.get("readerFeatures"),
        )

    def transaction_version(self, app_id: str) -> int | None:
        if not Path(self._log.path(self._at.number)).exists():
            raise DeltaError(f"File not found: {self._log.path(self._at.number)}")
        return self._at.transactions.get(app_id)

    def update_incremental(self) -> None:
        with suppress(TableNotFoundError):  # it says so when it reads the log
            self._at = self._newest()

    def _newest(self) -> _Version:
        """The table now, and no other in its place."""
        newest = self._log.newest()
        if newest.number < self._at.number or self._log.versions[self._at.number].metadata != self._at.metadata:
            raise DeltaError(
                f"the newest version in the log {newest.number} is older than snapshot version {self._at.number}"
            )
        return newest

    def move(self, version: int) -> None:
        """Have the handle at a version."""
        self._log.newest()
        self._at = self._log.versions[version]

    def get_add_actions(self, flatten: bool = False) -> pa.Table:
        return self._at.actions if flatten else self._at.actions.select(range(4))

    def create_write_transaction(
        self,
        actions: Sequence[AddAction | RemoveAction],
        mode: str,
        schema: Schema,
        *,
        commit_properties: CommitProperties,
        post_commithook_properties: PostCommitHookProperties,
    ) -> None:
        if mode != "append":
            self._real.create_write_transaction(
                list(actions),
                mode,
                schema,
                commit_properties=commit_properties,
                post_commithook_properties=post_commithook_properties,
            )
            return
        wanted = list(_written(actions, commit_properties))
        newest, attempts = self._newest(), commit_properties.max_commit_retries
        if newest.number > self._at.number:
            if attempts == 0:
                raise CommitFailedError(f"Transaction failed: Version {self._at.number + 1} already exists")
            for number in range(self._at.number + 1, newest.number + 1):
                self._refuse_conflict(number, wanted)
        self._log.write(newest, wanted)

    def vacuum(self, retention_hours: int, **named: Any) -> list[str]:
        """As delta-rs, which is asked only if a file is old enough."""
        before = time.time() - 3600 * retention_hours
        with os.scandir(self.table_uri.removeprefix(_FILE)) as found:
            if all(entry.stat().st_mtime > before for entry in found if not entry.is_dir()):
                return []
        return self._real.vacuum(retention_hours, **named)

    def _refuse_conflict(self, number: int, wanted: Sequence[Mapping[str, Any]]) -> None:
        base = self._at
        before, after = self._log.versions[number - 1 : number + 1]
        numbers = {action["txn"]["appId"] for action in wanted if "txn" in action}
        if any(before.transactions.get(name) != after.transactions.get(name) for name in numbers):
            raise CommitFailedError("Transaction failed: concurrent transaction")
        if before.metadata is not after.metadata or before.protocol != after.protocol:
            raise CommitFailedError("Transaction failed: metadata changed since last commit")
        if after.gone & base.files.keys():
            raise CommitFailedError("Commit failed: a concurrent transaction deleted data this operation read.")


class _Alterer:
    """Changes of structure and properties, after which a handle is at its own commit."""

    def __init__(self, table: QuickTable) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Callable[..., None]:
        real = DeltaTable(self._table.table_uri, version=self._table.version())

        def altered(*arguments: Any, **named: Any) -> None:
            getattr(real.alter, name)(*arguments, **named)
            self._table.move(real.version())

        return altered


def _written(actions: Sequence[AddAction | RemoveAction], properties: CommitProperties) -> Iterator[dict[str, Any]]:
    now = int(time.time() * 1000)
    for number in properties.app_transactions or ():
        yield {"txn": {"appId": number.app_id, "version": number.version, "lastUpdated": number.last_updated}}
    for action in actions:
        if isinstance(action, AddAction):
            yield {
                "add": {
                    "path": action.path,
                    "partitionValues": dict(action.partition_values),
                    "size": action.size,
                    "modificationTime": action.modification_time,
                    "dataChange": action.data_change,
                    "stats": action.stats,
                }
            }
        else:
            yield {
                "remove": {
                    "path": action.path,
                    "dataChange": action.data_change,
                    "deletionTimestamp": action.deletion_timestamp,
                    "extendedFileMetadata": False,
                }
            }
    about = {"timestamp": now, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    yield {"commitInfo": about | (properties.custom_metadata or {}) | {"clientVersion": "quick-tables"}}


@cache
def _modules() -> list[ModuleType]:
    """Modules that open or make tables."""
    found = []
    for room in ("lake", "ledger", "mirror"):
        package = import_module(f"{cdc_assets.__name__}.{room}")
        names = [found.name for found in iter_modules(package.__path__, f"{package.__name__}.")]
        found += [module for module in map(import_module, names) if getattr(module, "DeltaTable", None) is DeltaTable]
    return found


def forget_tables(folder: Path) -> None:
    """Keep nothing more of the tables below a folder, which are read again if somebody opens them."""
    for known in [known for known in _LOGS if known.startswith(f"{folder}/")]:
        del _LOGS[known]


def forget_versions(folder: Path) -> None:
    """A table's log was shortened by hand: what is read of it next is what there is."""
    for known, log in _LOGS.items():
        if known.startswith(f"{folder}/"):
            log.versions = []


@contextmanager
def quick_tables() -> Iterator[None]:
    """Within it the product opens its tables so."""
    modules = _modules()
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, "DeltaTable", QuickTable)
        yield
        _LOGS.clear()
