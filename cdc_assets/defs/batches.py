"""Records many events of a run in Dagster's SQLite storage at once.

Dagster stores an event by two to four connections, each to an engine, a transaction and a commit of its own: 5 to 8 ms of the
processor. A run that reports a thousand tables needs half a minute for that, which is more than it takes to read them. Within
`recorded_together` the events of one thread share a connection to the run's file and one to the index of all runs, which makes
an event five times cheaper. Other storages store each event as they do without it.

*Why it is right.* The statements are Dagster's own, in its order; only when they are committed is another. The run's file is
committed first, as by Dagster: events of one portion appear together.

*Crash between any two steps.* Before the first commit nothing of the portion is recorded, as nothing is that comes after a
crash. Between the two commits its events are on the run's page alone, as a single event is if a process of Dagster dies
between its two commits. No lock is left: the system takes it back with the process.

*Failures.* If the block fails, what it has recorded before stays. If a statement fails, as on a full disk, nothing of the
portion is recorded: SQLite may have taken back what one of the two files had, and the other must not keep it. If the first
commit fails, nothing is recorded; if the second one does, it is as after a crash between them. The run is told each time.

*Others wait* for the write lock of the file as long as a portion takes, a few tenths of a second. Within a block, this thread takes no
lock of the storage: whoever holds that may be waiting for the file.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import dagster as dg

from cdc_assets.core.steps import step

if TYPE_CHECKING:
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
    from sqlalchemy import Connection
    from sqlalchemy.exc import DBAPIError

T = TypeVar("T")

PORTION = 100
"""Events that are recorded together."""
_ONE_AT_A_TIME = threading.Lock()


def record_in_portions(
    instance: dg.DagsterInstance, run_id: str, items: Iterable[T], record: Callable[[T], object]
) -> None:
    """Record events of a run, `PORTION` at a time; the items of a portion are made before anything of it is recorded."""
    remaining = iter(items)
    while portion := list(islice(remaining, PORTION)):
        with recorded_together(instance, run_id):
            for item in portion:
                record(item)


@contextmanager
def recorded_together(instance: dg.DagsterInstance, run_id: str) -> Iterator[None]:
    """Record the events of a run that this thread reports in the block together; also if the block fails."""
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage

    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage):
        yield
        return
    with _ONE_AT_A_TIME, ExitStack() as stack:
        with storage.run_connection(run_id):
            pass  # the file exists from here on
        of_run, of_index = (stack.enter_context(_open(storage, shard)) for shard in (run_id, INDEX_SHARD_NAME))
        failures = stack.enter_context(_used(storage, run_id, of_run, of_index))
        try:
            yield
        finally:
            if not failures:
                step("events-recorded")
                of_run.commit()
                step("run-events-committed")
                of_index.commit()
        if failures:  # of a message, which Dagster passes over
            raise failures[0]


@contextmanager
def _open(storage: "SqliteEventLogStorage", shard: str) -> Iterator["Connection"]:
    from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    engine = create_engine(
        storage.conn_string_for_shard(shard),
        poolclass=NullPool,
        connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS},
    )
    with engine.connect() as connection:
        connection.begin()
        yield connection
    engine.dispose()


@contextmanager
def _used(
    storage: "SqliteEventLogStorage", run_id: str, of_run: "Connection", of_index: "Connection"
) -> Iterator["list[DBAPIError]"]:
    """Let the storage use these connections in this thread; gives the failures of their statements."""
    from sqlalchemy.exc import DBAPIError

    failures: list[DBAPIError] = []
    own, run_connection, index_connection = threading.get_ident(), storage.run_connection, storage.index_connection

    @contextmanager
    def lent(connection: "Connection") -> Iterator["Connection"]:
        try:
            yield connection
        except DBAPIError as error:
            failures.append(error)
            raise

    def run(shard: str | None = None) -> Any:
        return lent(of_run) if threading.get_ident() == own and shard == run_id else run_connection(shard)

    def index() -> "AbstractContextManager[Connection]":
        return lent(of_index) if threading.get_ident() == own else index_connection()

    vars(storage).update(run_connection=run, index_connection=index)
    try:
        yield failures
    finally:
        for name in ("run_connection", "index_connection"):
            del vars(storage)[name]
