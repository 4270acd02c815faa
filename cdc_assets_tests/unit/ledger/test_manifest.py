"""The window manifest: folding, checkpoints, fencing."""

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.notification import Notification
from cdc_assets.core.ports import KeyRange
from cdc_assets.errors import FencedError, InvariantError, LakeError
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger import manifest_rows
from cdc_assets.ledger.codec import decode, encode
from cdc_assets.ledger.fold import after, decode_state, encode_state
from cdc_assets.ledger.gaps import Skipped, skipped_before, with_skipped
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.notices import encode_notices
from cdc_assets.ledger.signal_state import QueuedTable, RoundReads, SignalState
from cdc_assets.ledger.snapshot_state import HeldRow, RoundFiles, SnapshotRun, SnapshotSlice, SnapshotTable
from cdc_assets.ledger.state import CaptureState, TableRead, Window
from cdc_assets.ledger.table_state import TableState

NOW = datetime(2026, 10, 1, tzinfo=UTC)
ORDERS, LINES = TableId("SalesDb", "dbo", "orders"), TableId("SalesDb", "dbo", "lines")


def lsn(number: int) -> Lsn:
    return Lsn.from_int(number)


def opened(path: Path) -> Manifest:
    return Manifest(TopicTables(Location(str(path)), "shop"), "shop")


def claimed(path: Path) -> Manifest:
    manifest = opened(path)
    manifest.claim(NOW)
    return manifest


def window(manifest: Manifest, after: int, until: int) -> Window:
    read = TableRead(ORDERS, "dbo_orders", lsn(after), lsn(until))
    return Window(manifest.state.next_window, "stream", "SalesDb", lsn(after), lsn(until), (lsn(until),), (read,))


def test_why_old_events_stay_is_recorded_once_and_until_they_do_not(tmp_path: Path) -> None:
    manifest = claimed(tmp_path)
    for why in ("a row has no position", "a row has no position"):
        manifest.record_kept(NOW, "shop.orders", why)
        manifest.record_kept(NOW, "shop.lines", "")
    manifest.record_retained(NOW, {}, {})
    again = claimed(tmp_path)
    assert [row["event"] for row in again.rows()].count("retained") == 2
    assert again.state.kept == {"shop.orders": "a row has no position"}
    assert decode_state(encode_state(again.state)).kept == again.state.kept
    again.record_kept(NOW, "shop.orders", "")
    assert not again.state.kept
    earlier = {name: value for name, value in encode_state(CaptureState()).items() if name != "kept"}
    assert decode_state(earlier) == CaptureState()


def test_names_of_all_tables_are_recorded_once_for_the_notifications_of_all_tables() -> None:
    names = ",".join(f"SalesDb.dbo.t{number}" for number in range(300))
    notifications = [
        Notification("Initial Snapshot", "TABLE_SCAN_COMPLETED", {"table": name, "data_collections": names}, NOW)
        for name in names.split(",")
    ]
    detail = json.dumps(encode_notices(notifications))
    assert len(detail) < 300 * len(names) / 20, "a row that grows with the square of the tables"
    state = after(CaptureState(), {"event": "notified", "database": None, "detail": detail})
    assert state.notifications == tuple(notifications)


def test_windows_of_several_databases_are_completed_together_or_alone(tmp_path: Path) -> None:
    manifest, there = claimed(tmp_path), dataclasses.replace(ORDERS, database="There")
    manifest.mark(NOW, "", [TableState(ORDERS, 1, lsn(5)), TableState(there, 1, lsn(1))])
    here = window(manifest, 5, 9)
    other = dataclasses.replace(here, database="There", until=lsn(3), reads=(TableRead(there, "x", lsn(1), lsn(3)),))
    with pytest.raises(InvariantError, match="once for each database"):
        manifest.plan(NOW, here, here)
    manifest.plan(NOW, here, other)
    manifest.complete(NOW, [], {there}, {}, database="There")
    assert opened(tmp_path).read().pending == (here,)
    manifest.complete(NOW, [], set(), {})
    state = opened(tmp_path).read()
    assert (state.pending, state.watermark("SalesDb"), state.watermark("There")) == ((), lsn(9), lsn(1))


def test_state_is_what_was_recorded(tmp_path: Path) -> None:
    manifest = claimed(tmp_path)
    ranges = (KeyRange("id", None, "5"), KeyRange("id", "5", None))
    states = [
        TableState(ORDERS, 1, lsn(5), "dbo_orders", ranges=ranges, snapshot_lsn=lsn(5)),
        TableState(LINES, 2, lsn(5), "dbo_lines"),
    ]
    manifest.mark(NOW, "SalesDb", states)
    manifest.plan(NOW, window(manifest, 5, 9))
    assert opened(tmp_path).read().pending == manifest.state.pending
    gap = dataclasses.replace(states[1], status="gap", reason="why", gaps=((lsn(5), lsn(7)),))
    manifest.complete(NOW, [gap], {LINES}, {"SalesDb.dbo.orders": {"c": 3}})
    state = opened(tmp_path).read()
    assert state == manifest.state
    assert state.tables[ORDERS].position == lsn(9)
    assert state.tables[LINES] == gap
    assert (state.pending, state.next_window, state.watermark("SalesDb")) == ((), 2, lsn(9))


def test_what_windows_left_out_is_kept_when_rows_are_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_rows, "_CHECKPOINT_EVERY", 3)
    manifest = claimed(tmp_path)
    manifest.mark(NOW, "SalesDb", [TableState(ORDERS, 1, lsn(5)), TableState(LINES, 2, lsn(5))])
    for after_, until, skipped in ((5, 9, "d"), (9, 12, ""), (12, 15, "u")):
        manifest.plan(NOW, dataclasses.replace(window(manifest, after_, until), skipped=skipped))
        manifest.complete(NOW, [], set(), {})
    assert manifest.folded
    state = opened(tmp_path).read()
    assert state.tables[ORDERS].skipped == (Skipped(lsn(5), lsn(15), "du"),)
    assert state.tables[LINES].skipped == ()


def test_a_state_of_an_earlier_version_has_nothing_that_was_left_out() -> None:
    state = CaptureState(tables={ORDERS: TableState(ORDERS, 1, lsn(5))})
    data = encode_state(state)
    for name in ("skipped", "reads_all"):
        del data["tables"][0][name]
    assert decode_state(data) == state


def test_intervals_that_were_left_out_are_apart_if_the_table_was_read_between() -> None:
    def united(read: int | None, *found: tuple[int, int, str]) -> list[tuple[int, int, str]]:
        kept: tuple[Skipped, ...] = ()
        for begin, end, operations in found:
            kept = with_skipped(kept, Skipped(lsn(begin), lsn(end), operations), None if read is None else lsn(read))
        return [(int(one.after), int(one.until), one.operations) for one in kept]

    assert united(None, (1, 3, "d"), (5, 7, "u")) == [(1, 7, "du")]
    assert united(None, (1, 3, "d"), (3, 7, "u")) == [(1, 7, "du")]
    assert united(3, (1, 3, "c"), (5, 7, "u")) == [(1, 3, "c"), (5, 7, "u")]
    assert united(3, (1, 3, "c"), (3, 7, "c")) == [(1, 3, "c"), (3, 7, "c")], "a mirror may have passed the first one"
    for operation in "ud":
        assert united(3, (1, 3, operation), (5, 7, "u")) == [(1, 7, "".join(sorted({"u", operation})))], (
            "of the same commit"
        )
        assert united(4, (1, 3, operation), (5, 7, "u")) == [(1, 3, operation), (5, 7, "u")]
    many = united(9999, *((10 * number, 10 * number + 1, "d") for number in range(300)))
    assert (len(many), many[0][0], many[-1]) == (100, 0, (2990, 2991, "d"))


def test_an_interval_of_a_former_history_ends_before_the_reading_that_begins_a_new_one() -> None:
    found = Skipped(lsn(1), lsn(3), "d"), Skipped(lsn(5), lsn(9), "d"), Skipped(lsn(8), lsn(9), "d")
    assert [int(one.until) for one in skipped_before(found, lsn(7))] == [3, 6, 9]


def test_table_that_stays_behind_is_not_advanced_though_healthy(tmp_path: Path) -> None:
    manifest = claimed(tmp_path)
    manifest.mark(NOW, "SalesDb", [TableState(ORDERS, 1, lsn(5)), TableState(LINES, 2, lsn(5))])
    manifest.plan(NOW, window(manifest, 5, 9))
    manifest.complete(NOW, [TableState(LINES, 2, lsn(7))], {LINES}, {})
    assert opened(tmp_path).read().watermark("SalesDb") == lsn(7)


def test_snapshot_in_flight_survives(tmp_path: Path) -> None:
    manifest = claimed(tmp_path)
    ranges = (KeyRange("id", None, None),)
    run = SnapshotRun(
        1,
        "SalesDb",
        (SnapshotTable(ORDERS, 1, "dbo_orders", lsn(5), ranges, whole=True),),
        (SnapshotSlice(ORDERS, 0, (0, 0), ranges[0], 10),),
    )
    manifest.start_snapshot(NOW, run)
    manifest.plan(NOW, Window(2, "snapshot", "SalesDb", lsn(5), lsn(5), slices=(0,)))
    held = HeldRow(ORDERS, 0, first=True, first_of_all=False, batch="AAAA")
    written = RoundFiles((("topic", (DataFile("f", 1, 2, "a", "b", 2, {"r": 2}, 3),)),), 1, held)
    manifest.record_files(NOW, written)
    state = opened(tmp_path).read()
    assert (state.written, state.snapshots["SalesDb"]) == (written, run)
    manifest.complete_round(NOW)
    state = opened(tmp_path).read()
    assert (state.pending, state.written, state.snapshots["SalesDb"].done) == ((), None, 1)
    assert state.snapshots["SalesDb"].held == held
    manifest.finish_snapshot(NOW, "SalesDb", [TableState(ORDERS, 1, lsn(5))])
    assert opened(tmp_path).read().snapshots == {}


@pytest.mark.long
def test_checkpoint_folds_rows_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_rows, "_CHECKPOINT_EVERY", 7)
    monkeypatch.setattr(manifest_rows, "_KEEP_ROWS", 4)
    manifest = claimed(tmp_path)
    manifest.mark(NOW, "SalesDb", [TableState(ORDERS, 1, lsn(1))])
    for number in range(1, 20):
        manifest.plan(NOW, window(manifest, number, number + 1))
        manifest.complete(NOW, [], set(), {"SalesDb.dbo.orders": {"c": 1}})
        assert opened(tmp_path).read() == manifest.state
    handle = TopicTables(Location(str(tmp_path)), "reader").open("shop.__windows")
    assert handle is not None
    assert len(handle.file_uris()) <= 8
    again = claimed(tmp_path)
    assert again.state == manifest.state
    with pytest.raises(FencedError):
        manifest.advance(NOW, "SalesDb", lsn(99))


def test_two_claims_at_once_cannot_both_write(tmp_path: Path) -> None:
    first, second = claimed(tmp_path), opened(tmp_path)
    second.claim(NOW)
    with pytest.raises(FencedError, match="taken over"):
        first.plan(NOW, window(first, 1, 2))
    with pytest.raises(InvariantError):
        first.plan(NOW, window(first, 1, 2))
    second.plan(NOW, window(second, 1, 2))
    assert opened(tmp_path).read().pending


def test_window_numbers_are_used_once(tmp_path: Path) -> None:
    manifest = claimed(tmp_path)
    manifest.plan(NOW, window(manifest, 1, 2))
    with pytest.raises(InvariantError):
        manifest.plan(NOW, window(manifest, 2, 3))


def test_lost_file_is_reported_and_no_position_guessed(tmp_path: Path) -> None:
    claimed(tmp_path)
    next((tmp_path / "shop.__windows").glob("*.parquet")).unlink()
    with pytest.raises(LakeError, match="cannot be reconstructed"):
        opened(tmp_path).read()


def test_reading_without_manifest_gives_the_empty_state(tmp_path: Path) -> None:
    assert opened(tmp_path).read().tables == {}
    assert not list(tmp_path.iterdir())


def test_signals_are_recorded_beside_a_window_while_a_round_of_another_database_waits_for_its_commit(
    tmp_path: Path,
) -> None:
    manifest = claimed(tmp_path)
    manifest.mark(NOW, "SalesDb", [TableState(ORDERS, 1, lsn(5), "dbo_orders")])
    entry = QueuedTable(TableId("Stock", "dbo", "parts"), "s1")
    reads = RoundReads(manifest.state.next_window, "shop.Stock.dbo.parts", (), ("7",), False, entry)
    manifest.record_signals(NOW, {"Stock": SignalState(queue=(entry,), reads=reads)})
    manifest.plan(NOW, window(manifest, 5, 9))
    told = SignalState(queue=(entry,), reads=reads, places=(("file:a", 1),))
    manifest.record_signals(NOW, {"Stock": told, "SalesDb": SignalState(places=(("file:a", 1),))})
    assert manifest.state.signals["Stock"] == told
    late = dataclasses.replace(reads, window_id=manifest.state.next_window)
    with pytest.raises(InvariantError, match="inside a window"):
        manifest.record_signals(NOW, {"Stock": dataclasses.replace(told, reads=late)})
    data = encode(dataclasses.replace(reads, hidden=(("v", "mask"),)))
    assert decode(RoundReads, data).hidden == (("v", "mask"),)
    assert decode(RoundReads, {name: value for name, value in data.items() if name != "hidden"}) == reads
