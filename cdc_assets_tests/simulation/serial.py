"""Threads inside the product run in the thread of their actor, and no clock nor number of the machine decides anything, so that a seed
gives one history."""

import importlib
import os
import pkgutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import cdc_assets
from cdc_assets.history import store
from cdc_assets.ledger.fenced_log import FencedLog
from cdc_assets.ledger.folded_log import Folding


class SerialPool:
    """A pool of threads that has none: what is handed over is done at once."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - the future's
            done.set_exception(error)
        return done

    def map(self, function: Callable[..., Any], *items: Iterable[Any], **_: object) -> Iterator[Any]:
        return map(function, *items)

    def shutdown(self, **_: object) -> None:
        pass


ROOMS = (
    "streaming",
    "snapshot",
    "incremental",
    "lake",
    "mirror",
    "publish",
    "capture",
    "retention",
    "reconcile",
    "ledger",
)


def modules() -> list[ModuleType]:
    """Modules of the product's algorithms."""
    found = []
    for room in ROOMS:
        package = importlib.import_module(f"{cdc_assets.__name__}.{room}")
        names = [found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
        found += [package, *map(importlib.import_module, names)]
    return found


class Ticks:
    """A clock of the machine that goes on by as much whenever it is asked."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 1 / 1024
        return self._now


def without_clock(patch: pytest.MonkeyPatch) -> None:
    """Have all rooms measure what has passed by such a clock."""
    known, ticks = time.monotonic, Ticks()
    for module in modules():
        for name, value in list(vars(module).items()):
            if value is known:
                patch.setattr(module, name, ticks)
    patch.setattr(time, "monotonic", ticks)


_known: dict[str, Any] = {}
_folded: dict[tuple[int, int], tuple[Any, Any, Any]] = {}


def forget_rows() -> None:
    """Keep no row of a history that has ended."""
    _known.clear()
    _folded.clear()


def with_known_rows(patch: pytest.MonkeyPatch) -> None:
    """Read each file of a record and of a schema history once, and fold each row of a record once: they never change, and each process
    opens them anew."""
    read, known, folded = FencedLog._read, _known, _folded

    def rows(log: FencedLog, files: fs.FileSystem, path: str) -> Any:
        if path not in known:
            known[path] = read(log, files, path)
        return known[path]

    def onward(folding: Folding[Any], rows: Sequence[Any], state: Any) -> Any:
        for row in rows:
            if (key := (id(state), id(row))) not in folded:
                folded[key] = state, row, folding.after(state, row)  # with both, so that no other has their names
            state = folded[key][2]
        return state

    def structures(path: str, filesystem: fs.SubTreeFileSystem, schema: pa.Schema) -> pa.Table:
        name = filesystem.base_path + path
        if name not in known:
            known[name] = pq.read_table(path, filesystem=filesystem, schema=schema)
        return known[name]

    patch.setattr(store, "pq", SimpleNamespace(read_table=structures))
    patch.setattr(FencedLog, "_read", rows)
    patch.setattr(Folding, "onward", onward)


def with_names(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Have the names of files and the like, which are in order somewhere, come from a seed."""
    patch.setattr(os, "urandom", Random(seed).randbytes)  # noqa: S311 - a history that can be repeated


def without_threads(patch: pytest.MonkeyPatch) -> None:
    """Replace all pools of these modules."""
    assert futures.ThreadPoolExecutor is ThreadPoolExecutor
    for module in modules():
        for name, value in list(vars(module).items()):
            if value is ThreadPoolExecutor:
                patch.setattr(module, name, SerialPool)
            elif isinstance(value, ThreadPoolExecutor):
                patch.setattr(module, name, SerialPool())
