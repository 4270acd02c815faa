"""Queries of many capture instances at once: one that cannot be read hides no other."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import ClassVar, cast

import pytest

from cdc_assets.adapters.sqlserver import change_tables, commit_counts
from cdc_assets.adapters.sqlserver import source as source_module
from cdc_assets.adapters.sqlserver.reached import Floor
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.sqlserver.table_queries import LOCK_WAIT_MS
from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.errors import LockTimeoutError, ObjectDeniedError, QueryError

LSN = Lsn.from_int(7)
SETTINGS = ConnectionSettings(host="db", user="reader", password="secret", databases=("Shop",))


class OneBroken:
    """A session of a database where one change table cannot be read; each of the others has a row, of the commit 7."""

    def __init__(self, error: Exception) -> None:
        self.error, self.lock_timeout_ms, self.waits = error, LOCK_WAIT_MS, list[int]()

    @contextmanager
    def waiting(self, milliseconds: int) -> Iterator[None]:
        before, self.lock_timeout_ms = self.lock_timeout_ms, milliseconds
        yield
        self.lock_timeout_ms = before

    def value(self, statement: str, *_: object) -> object:
        return 0 if "COUNT" in statement else None

    def rows(self, statement: str, *_: object) -> Sequence[tuple[object, ...]]:
        names = re.findall(r"\[(\w+)_CT\]", statement)
        if any(name.startswith("broken") for name in names):
            self.waits.append(self.lock_timeout_ms)
            raise self.error
        if "position_in_commit" in statement:
            return [(1, LSN.raw)]
        return [(place, LSN.raw, 1) if "AS lsn" in statement else (place, 3) for place, _ in enumerate(names)]

    def floor(self, database: str, lsn: Lsn) -> Floor:
        return Floor(database, lsn)

    def rows_behind(self, _: object, statement: str, *parameters: object) -> Sequence[tuple[object, ...]]:
        return self.rows(statement, *parameters)


@pytest.mark.parametrize(
    "error",
    [
        QueryError("Invalid object name 'cdc.broken_CT'.", 208),
        QueryError("SQL Server detected a logical consistency-based I/O error.", 824),
        ObjectDeniedError("The SELECT permission was denied."),
        LockTimeoutError("Lock request time out period exceeded."),
    ],
    ids=lambda error: str(error)[:7],
)
def test_a_change_table_that_cannot_be_read_is_left_to_whoever_reads_it(error: Exception) -> None:
    session, bounds = cast("Session", OneBroken(error)), {"broken": ZERO_LSN, "orders": ZERO_LSN}
    assert change_tables.active_instances(session, "Shop", bounds, LSN) == {"broken", "orders"}
    assert commit_counts.rows_per_commit(session, session, "Shop", bounds, LSN) == {"orders": [(LSN, 1)]}
    assert change_tables.positions_in_commit(session, "Shop", list(bounds), LSN, 2)


def test_locks_of_many_change_tables_are_waited_for_once() -> None:
    """Else they would hold up all other tables for half a minute each."""
    broken = OneBroken(LockTimeoutError("Lock request time out period exceeded."))
    names = ["orders", *(f"broken{number}" for number in range(50))]
    bounds = dict.fromkeys(names, ZERO_LSN)
    assert change_tables.active_instances(cast("Session", broken), "Shop", bounds, LSN) == {*names}
    assert broken.waits == [LOCK_WAIT_MS, *(50 * [0])]
    assert broken.lock_timeout_ms == LOCK_WAIT_MS


def test_only_after_a_lock_is_none_waited_for() -> None:
    """A table that is refused must not hide those to which the capture job writes at that moment: their rows would not be counted."""
    broken = OneBroken(ObjectDeniedError("The SELECT permission was denied."))
    bounds = dict.fromkeys(("broken", "orders"), ZERO_LSN)
    change_tables.active_instances(cast("Session", broken), "Shop", bounds, LSN)
    assert broken.waits == [LOCK_WAIT_MS, LOCK_WAIT_MS]


class Damaged(OneBroken):
    """A session whose server ends the connection with the error, as at a damaged page."""

    connections, is_open = 1, True
    left: ClassVar[dict[str, tuple[str, ...]]] = {}
    asking_little = nullcontext

    def rows(self, statement: str, *parameters: object) -> Sequence[tuple[object, ...]]:
        self.connect()
        try:
            return super().rows(statement, *parameters)
        except QueryError:
            self.is_open = False
            raise

    def value(self, statement: str, *parameters: object) -> object:
        self.connect()
        return super().value(statement, *parameters)

    def connect(self) -> None:
        if not self.is_open:
            self.connections, self.is_open = self.connections + 1, True


@pytest.mark.parametrize("names", [("broken",), ("broken", "orders"), ("broken", "brokentoo", "lines", "orders")])
def test_a_change_table_that_ends_the_connection_hides_no_other_s_answer(
    monkeypatch: pytest.MonkeyPatch, names: Sequence[str]
) -> None:
    damaged, bounds = Damaged(QueryError("SQL Server detected an I/O error.", 824)), dict.fromkeys(names, ZERO_LSN)
    monkeypatch.setattr(source_module, "Session", lambda *_: damaged)
    source = SqlServerSource(SETTINGS)
    for _ in range(2):
        assert source.active_instances("Shop", bounds, LSN) == {*names}
        healthy = {name: [(LSN, 1)] for name in names if not name.startswith("broken")}
        assert source.rows_per_commit("Shop", bounds, LSN) == healthy
        source.positions_in_commit("Shop", list(names), LSN, 1)
        assert source.low_water_marks("Shop") == {}, "over the same connection"
