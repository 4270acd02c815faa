"""The lock manager alone."""

import threading
import time
from collections.abc import Callable

import pytest

from mssql_standin.contract import Cancelled
from mssql_standin.errors import SqlError
from mssql_standin.store.locks import Locks, Mode


def in_thread(work: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def until_waiting(locks: Locks, count: int) -> None:
    """Return when so many requests wait."""
    for _ in range(12_000):  # looks, not seconds: a machine that stands still meanwhile takes none away
        if len(locks.waiting()) == count:
            return
        time.sleep(0.005)
    pytest.fail(f"{locks.waiting()} wait, not {count}")


@pytest.mark.parametrize(
    ("held", "wanted", "granted"),
    [
        (Mode.S, Mode.S, True),
        (Mode.S, Mode.IX, False),
        (Mode.IX, Mode.IX, True),
        (Mode.IX, Mode.S, False),
        (Mode.X, Mode.IS, False),
        (Mode.SIX, Mode.IS, True),
        (Mode.SIX, Mode.IX, False),
    ],
)
def test_compatibility(held: Mode, wanted: Mode, granted: bool) -> None:
    locks = Locks()
    locks.acquire("a", 1, held)
    if granted:
        locks.acquire("b", 1, wanted, 0)
    else:
        with pytest.raises(SqlError) as raised:
            locks.acquire("b", 1, wanted, 0)
        assert raised.value.number == 1222


def test_own_locks_join() -> None:
    locks = Locks()
    locks.acquire("a", 1, Mode.S)
    locks.acquire("a", 1, Mode.IX)
    assert locks.holds("a", 1, Mode.SIX)
    locks.release_all("a")
    locks.acquire("b", 1, Mode.X, 0)


def test_waiters_are_served_in_order() -> None:
    locks, order = Locks(), list[str]()
    locks.acquire("writer", 1, Mode.IX)

    def reader() -> None:
        locks.acquire("reader", 1, Mode.S)
        order.append("reader")
        locks.release_all("reader")

    def second() -> None:
        locks.acquire("second", 1, Mode.IX)
        order.append("second")
        locks.release_all("second")

    first_thread, _ = in_thread(reader)
    until_waiting(locks, 1)
    second_thread, _ = in_thread(second)
    until_waiting(locks, 2)
    assert order == []
    locks.release_all("writer")
    first_thread.join(60)
    second_thread.join(60)
    assert order == ["reader", "second"]


def test_the_one_that_closes_a_cycle_is_the_victim() -> None:
    locks = Locks()
    locks.acquire("a", 1)
    locks.acquire("b", 2)
    thread, errors = in_thread(lambda: locks.acquire("a", 2))
    until_waiting(locks, 1)
    with pytest.raises(SqlError) as raised:
        locks.acquire("b", 1)
    assert raised.value.number == 1205
    locks.release_all("b")
    thread.join(60)
    assert not errors
    assert locks.holds("a", 2, Mode.X)


def test_an_attention_ends_the_wait() -> None:
    locks = Locks()
    locks.acquire("a", 1)

    def check() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        locks.acquire("b", 1, check=check)
    locks.release_all("a")
    locks.acquire("c", 1, Mode.X, 0)


def test_a_counter_under_many_threads() -> None:
    locks, count = Locks(), 0

    def work(name: str) -> None:
        nonlocal count
        for _ in range(50):
            locks.acquire(name, 1)
            seen = count
            time.sleep(0)
            count = seen + 1
            locks.release_all(name)

    threads = [in_thread(lambda number=number: work(f"t{number}"))[0] for number in range(4)]  # type: ignore[misc]
    for thread in threads:
        thread.join(60)
    assert count == 200
