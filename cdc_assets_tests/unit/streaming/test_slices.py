"""Windows end at rows enough, and are cut into parts of about equal rows, inside of transactions where they must be."""

import gc
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.streaming.slices import cut, cut_window, end_of_window, in_order, parts_of, rows_of_window, share_of
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.loop_runner import LoopRunner
from cdc_assets_tests.unit.streaming.tables import two_tables

COUNTS = st.lists(st.integers(1, 1000), max_size=40)


def numbered(counts: list[int]) -> list[tuple[Lsn, int]]:
    return [(Lsn.from_int(place), rows) for place, rows in enumerate(counts, 1)]


@given(COUNTS, st.integers(1, 12))
def test_cut_covers_the_window_in_order_and_balances(counts: list[int], slices: int) -> None:
    commits = [(Lsn.from_int(10 * place), rows) for place, rows in enumerate(counts, 1)]
    until = Lsn.from_int(10 * len(counts) + 5)
    bounds = cut(commits, until, slices)
    assert bounds == sorted(set(bounds))
    assert bounds[-1] == until
    assert len(bounds) <= slices
    assert set(bounds[:-1]) <= {lsn for lsn, _ in commits}
    share = sum(counts) / slices
    low = Lsn.from_int(0)
    for bound in bounds:
        part = sum(rows for lsn, rows in commits if low < lsn <= bound)
        assert part <= share + max(counts, default=0)
        low = bound


def test_cut_of_equal_commits_is_even() -> None:
    assert [int(lsn) for lsn in cut(numbered([1] * 100), Lsn.from_int(100), 4)] == [25, 50, 75, 100]


@given(COUNTS, st.integers(2, 12))
def test_no_part_is_much_larger_than_its_share(counts: list[int], parts: int) -> None:
    """However large a transaction is: every row of it has a place of its own here."""

    def places(commit: Lsn, step: int) -> list[Position]:
        return [Position(commit, 1, Lsn.from_int(row), 4) for row in range(step, counts[int(commit) - 1] + 1, step)]

    until = Lsn.from_int(len(counts) + 5)
    borders = cut_window(numbered(counts), until, parts, places)
    bounds = [border for border in borders if isinstance(border, Lsn)]
    cuts = [border for border in borders if isinstance(border, Position)]
    assert borders[-1] == until
    assert in_order(bounds, cuts) == borders
    starts = [sum(counts[:place]) for place in range(len(counts) + 1)]
    reached = [
        starts[min(int(border), len(counts))]
        if isinstance(border, Lsn)
        else starts[int(border.commit_lsn) - 1] + int(border.change_lsn)
        for border in borders
    ]
    sizes = [high - low for low, high in zip([0, *reached], reached, strict=False)]
    assert sum(sizes) == sum(counts)
    assert max(sizes) <= 3 * sum(counts) / parts + 1


def test_transactions_that_fit_a_part_are_not_cut() -> None:
    def places(commit: Lsn, step: int) -> list[Position]:
        raise AssertionError(commit)

    assert len(cut_window(numbered([5] * 8), Lsn.from_int(8), 4, places)) == 4
    assert cut_window(numbered([100]), Lsn.from_int(1), 4, None) == [Lsn.from_int(1)]


@given(COUNTS, st.integers(1, 5000))
def test_a_window_ends_behind_the_first_transaction_that_fills_it(counts: list[int], most: int) -> None:
    until = Lsn.from_int(len(counts) + 1)
    end = end_of_window(numbered(counts), until, most)
    taken = sum(counts[: int(end)])
    assert taken >= min(most, sum(counts))
    assert end == until or sum(counts[: int(end) - 1]) < most


@pytest.mark.parametrize(
    ("rows", "tasks", "parts"),
    [
        (0, 8, 1),
        (9_999, 8, 1),
        (25_000, 8, 2),
        (1_500_000, 24, 24),
        (4_000_000, 2, 2),
        (4_000_001, 2, 4),
        (60_000_000, 4, 32),
    ],
)
def test_parts_follow_rows_and_tasks(rows: int, tasks: int, parts: int) -> None:
    assert parts_of(rows, tasks) == parts


def test_windows_grow_with_the_tasks() -> None:
    assert [rows_of_window(0, tasks) for tasks in (1, 8, 24)] == [4_000_000, 4_000_000, 12_000_000]
    assert rows_of_window(7, 24) == 7


@pytest.mark.parametrize("most", [1, 3, 4, 100])
def test_windows_are_bounded_in_rows(tmp_path: Path, most: int) -> None:
    server, config, lines, _orders = two_tables(tmp_path, window_rows=most, slices=1)
    for number in range(12):
        server.commit(*((lines, "insert", 100 + 2 * number + row, "new") for row in range(2)))
    summary = make_capture(server, config).stream()
    assert summary.windows == -(-24 // (2 * -(-most // 2)))
    assert [event.key for event in events_of(config, lines)][-24:] == list(range(100, 124))


def test_a_backlog_is_not_counted_again_in_each_window(tmp_path: Path) -> None:
    server, config, lines, _orders = two_tables(tmp_path, window_rows=4, slices=1)
    for number in range(32):
        server.commit((lines, "insert", 100 + number, "new"))
    counted: list[int] = []
    ask = server.rows_per_commit

    def noted(*arguments: object) -> object:
        found = ask(*arguments)  # type: ignore[arg-type]
        counted.append(sum(rows for counts in found.values() for _, rows in counts))
        return found

    server.rows_per_commit = noted  # type: ignore[assignment,method-assign]
    assert make_capture(server, config).stream().windows == 8
    assert sum(counted) <= 32 + 3 * 32


def test_the_counts_of_a_window_are_not_looked_at_for_garbage(tmp_path: Path) -> None:
    """They are thousands of objects, and with them the collector looks at all that the process has imported."""
    server, config, lines, _orders = two_tables(tmp_path)
    server.commit((lines, "insert", 100, "new"))
    ask, collecting = server.rows_per_commit, list[bool]()
    server.rows_per_commit = lambda *given: collecting.append(gc.isenabled()) or ask(*given)  # type: ignore[assignment,method-assign]
    assert make_capture(server, config).stream().windows == 1
    assert collecting == [False]
    assert gc.isenabled()


@pytest.mark.parametrize("metadata", [False, True])
def test_a_large_transaction_is_read_by_all_tasks_and_committed_once(tmp_path: Path, metadata: bool) -> None:
    server, config, lines, orders = two_tables(tmp_path, slices=4, transaction_metadata=metadata)
    changes = [(table, "insert", key, "new") for key in range(100, 140) for table in (lines, orders)]
    changes += [(lines, "update", key, "newer") for key in range(100, 140)]
    server.commit(*changes)
    runner = Counting()
    versions = [version(config.lake.path, table) for table in (lines, orders)]
    summary = make_capture(server, config, runner=runner).stream()
    assert summary.windows == 1
    assert runner.tasks["run_slice"] == 4
    assert [version(config.lake.path, table) for table in (lines, orders)] == [number + 1 for number in versions]
    assert len([event for event in events_of(config, lines) if event.op != "r"]) == 80
    assert not state_of(config).pending


class Counting(LoopRunner):
    """Counts the tasks of each kind."""

    def __init__(self) -> None:
        super().__init__(4)
        self.tasks: dict[str, int] = {}

    def run(self, function, tasks, job):  # type: ignore[no-untyped-def]
        self.tasks[function.__name__] = len(tasks)
        return super().run(function, tasks, job)


def version(lake: str, table: object) -> int:
    return DeltaTable(f"{lake}/shop.{table}").version()


def test_a_database_has_what_the_others_leave_of_a_window_and_at_least_an_equal_part() -> None:
    assert share_of("a", 100, {}) == 100
    assert share_of("a", 100, {"a": 90}) == 100
    assert share_of("a", 100, {"a": 90, "b": 3, "c": 2}) == 95
    assert share_of("a", 100, {"a": 100, "b": 100, "c": 100, "d": 100}) == 25
    assert share_of("a", 1, {"b": 1, "c": 1}) == 1
