"""Which restores are harmless: the rule, and that the finding is recorded as a whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import RecoveryFork
from cdc_assets.ledger.readings import Reading
from cdc_assets.ledger.state import CaptureState, LogHistory
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.forks import greatest_lsn_in_lake, shared_until


def lsn(number: int) -> Lsn:
    return Lsn.from_int(number)


READ = LogHistory("A", lsn(50))


@pytest.mark.parametrize(
    ("log", "reached", "fork", "captured", "shared"),
    [
        (READ, lsn(50), RecoveryFork("A", None), lsn(50), None),
        (READ, lsn(50), RecoveryFork("A", None), None, None),
        (READ, lsn(50), RecoveryFork("A", lsn(7)), lsn(49), ZERO_LSN),  # the whole server was put back
        (
            READ,
            lsn(50),
            RecoveryFork("A", lsn(51)),
            lsn(49),
            None,
        ),  # its capture job has not come so far since it took over
        (READ, lsn(50), RecoveryFork("B", lsn(51)), lsn(1), None),
        (READ, lsn(50), RecoveryFork("B", lsn(50)), lsn(99), lsn(49)),
        (READ, lsn(50), RecoveryFork("B", lsn(7)), lsn(99), lsn(6)),
        (READ, lsn(50), RecoveryFork("B", None), lsn(99), ZERO_LSN),
        (LogHistory("A"), lsn(60), RecoveryFork("B", lsn(60)), None, lsn(59)),
        (LogHistory("A"), None, RecoveryFork("B", None), None, None),
        (LogHistory(), lsn(60), RecoveryFork("B", lsn(7)), lsn(1), None),
        (LogHistory("A", lsn(50), shared=lsn(6)), lsn(50), RecoveryFork("C", lsn(30)), None, lsn(6)),
        (LogHistory("A", lsn(50), shared=lsn(6)), lsn(50), RecoveryFork("C", lsn(51)), None, lsn(6)),
        (READ, lsn(50), None, lsn(49), ZERO_LSN),
        (READ, lsn(50), None, lsn(50), None),
        (READ, lsn(50), None, None, None),
        (LogHistory("", lsn(50)), lsn(50), RecoveryFork("B", lsn(7)), lsn(49), lsn(6)),
        (LogHistory("", lsn(50)), lsn(50), RecoveryFork("B", None), lsn(49), ZERO_LSN),
        (LogHistory("A"), lsn(60), None, lsn(10), None),
    ],
)
def test_what_both_histories_share(
    log: LogHistory, reached: Lsn | None, fork: RecoveryFork | None, captured: Lsn | None, shared: Lsn | None
) -> None:
    assert shared_until(log, reached, fork, captured) == shared


@given(st.sets(st.integers(1, 40)), st.integers(1, 41), st.sets(st.integers(1, 40)), st.integers(0, 40))
def test_a_capture_that_continues_has_read_nothing_that_is_gone(
    old: set[int], point: int, new: set[int], reached: int
) -> None:
    after = {number for number in old if number < point} | {number for number in new if number >= point}
    read = {number for number in old if number <= reached}
    shared = shared_until(LogHistory("A", lsn(reached)), lsn(reached), RecoveryFork("B", lsn(point)), None)
    if shared is None:
        assert read == {number for number in after if number <= reached}
    else:
        assert {number for number in read if lsn(number) <= shared} == {n for n in after if lsn(n) <= shared}
        assert lsn(reached) > shared


@pytest.mark.parametrize(("high", "is_lost"), [(None, True), (25, False), (40, True)])
def test_rows_that_a_snapshot_read_later_than_its_lsn_may_be_gone(high: int | None, is_lost: bool) -> None:
    """Also as long as it is not recorded up to when they were read."""
    table = TableId("d", "dbo", "t")
    reading = Reading(lsn(20), 5, lsn(high) if high else None)
    known = TableState(table, 1, lsn(20), "i", snapshot_lsn=lsn(20))
    state = CaptureState(tables={table: known}, readings={table: (reading,)}, logs={"d": LogHistory("A", lsn(20))})
    reached = greatest_lsn_in_lake(state, "d")
    unsure = lsn(20) if high is None else None
    shared = shared_until(state.log("d"), reached, RecoveryFork("B", lsn(30)), None, unsure)
    assert (shared is not None) is is_lost


def test_numbers_of_backup_history() -> None:
    assert str(Lsn.from_decimal(44 * 10**15 + 3248 * 10**5 + 84)) == "0000002c:00000cb0:0054"
    assert str(Lsn.from_decimal(4294967295_4294967295_65535)) == "ffffffff:ffffffff:ffff"
