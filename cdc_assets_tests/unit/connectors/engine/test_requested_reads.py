"""Snapshots on request: which tables they have read whole."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.connectors.engine.feed import Chunk, Lines
from cdc_assets.connectors.engine.requested_reads import RequestedReads
from cdc_assets.connectors.engine.signalled_run import signals_in
from cdc_assets.connectors.engine.topics import signal_topic
from cdc_assets.core.signal import Signal
from cdc_assets_tests.unit.connectors.engine.batches import config_for

NOTES, SIGNALS = "shop.notifications", "shop.db.signals"
CONFIG = replace(
    config_for(Path("lake")),
    properties={
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "signal.data.collection": "db.signals",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": NOTES,
    },
)
CHOSEN = {"additional-conditions": [{"data-collection": r"db\.a", "filter": "id > 1"}]}


def asked(kind: str, *names: str, **more: Any) -> Signal:
    return Signal("s", "execute-snapshot", json.dumps({"type": kind, "data-collections": names, **more}))


def lines(topic: str, *values: Mapping[str, Any]) -> Lines:
    data = "".join(json.dumps({"value": value}) + "\n" for value in values).encode()
    return Lines(topic, 1, None, None, len(values), 1000, data)


def scan(table: str, kind: str = "Blocking Snapshot", status: str = "SUCCEEDED") -> Lines:
    more = {"scanned_collection": table, "status": status}
    return lines(NOTES, {"aggregate_type": kind, "type": "TABLE_SCAN_COMPLETED", "additional_data": more})


def chunk(*found: Lines, **offset: str) -> Chunk:
    return Chunk(1, found, 1, [({}, offset)])


def read(handed: list[Signal], *chunks: Chunk) -> list[str]:
    reads = RequestedReads(CONFIG, handed, ())
    for one in chunks:
        reads.take(one)
    return sorted(reads.read)


def row(signal: Signal, operation: str = "c") -> Lines:
    return lines(SIGNALS, {"op": operation, "after": {"a": signal.id, "b": signal.type, "c": signal.data}})


INCREMENTAL = "Incremental Snapshot"
COLLECTIONS = "incremental_snapshot_collections"


def queued(*conditions: str | None) -> str:
    """An offset by which one table is read so many times, of each a condition chooses the rows, or none."""
    entries = [{f"{COLLECTIONS}_id": "db.a", f"{COLLECTIONS}_additional_condition": one} for one in conditions]
    return json.dumps(entries)


@pytest.mark.parametrize("way", ["handed", "row"])
def test_a_table_of_which_a_condition_chooses_the_rows_is_not_read(way: str) -> None:
    signal = asked("blocking", r"db\.a", r"db\.b", **CHOSEN)
    handed, rows = ([signal], []) if way == "handed" else ([], [row(signal)])
    assert read(handed, chunk(*rows), chunk(scan("db.a"), scan("db.b"), scan("db.c"))) == ["db.b"]
    older = asked("blocking", "db.a", **{"additional-condition": "id > 1"})
    assert read([older], chunk(scan("db.a"))) == []
    assert read([asked("blocking", "db.a"), older], chunk(scan("db.a"), scan("db.a"))) == []
    assert read([], chunk(row(asked("blocking", "db.a"), "r")), chunk(scan("db.a"))) == []


def test_reports_are_of_requests_of_their_kind_in_turn() -> None:
    both = [asked("incremental", "db.a", **CHOSEN), asked("blocking", "db.a")]
    assert read(both, chunk(scan("db.a", INCREMENTAL))) == []
    assert read(both, chunk(scan("db.a"))) == ["db.a"]
    later = [asked("incremental", "db.a", **CHOSEN), asked("incremental", "db.a")]
    assert read(later, chunk(scan("db.a", INCREMENTAL))) == []
    assert read(later, chunk(scan("db.a", INCREMENTAL)), chunk(scan("db.a", INCREMENTAL))) == ["db.a"]


@pytest.mark.parametrize(("condition", "found"), [(None, ["db.a"]), ("id > 1", [])])
def test_an_offset_shows_incremental_snapshots_that_a_former_run_or_another_channel_has_begun(
    condition: str | None, found: list[str]
) -> None:
    name, text = COLLECTIONS, queued(condition)
    assert read([], chunk(**{name: text}), chunk(scan("db.a", INCREMENTAL))) == found
    reads = RequestedReads(CONFIG, [], [({}, {name: text})])
    reads.take(chunk(scan("db.a", INCREMENTAL)))
    assert sorted(reads.read) == found
    assert RequestedReads(CONFIG, [], [({}, {name: text})]).is_whole("shop.db.a") == bool(found)
    assert read([], chunk(**{name: "another form"}), chunk(scan("db.a"))) == []


def test_signals_that_wait_in_a_file_are_known(tmp_path: Path) -> None:
    file = tmp_path / "signals.jsonl"
    assert signals_in(file) == []
    data = {"type": "blocking", "data-collections": ["db.a"]}
    file.write_text(json.dumps({"id": "s", "type": "execute-snapshot", "data": data}) + "\nno JSON\n[]\n")
    assert read(signals_in(file), chunk(scan("db.a"))) == ["db.a"]


def test_a_table_that_an_offset_has_twice_is_not_read_while_a_condition_chooses_rows() -> None:
    reads = RequestedReads(CONFIG, [], [({}, {COLLECTIONS: queued("id > 1", None)})])
    reads.take(chunk(scan("db.a", INCREMENTAL)))
    assert reads.read == set()
    reads.take(chunk(scan("db.a", INCREMENTAL), **{COLLECTIONS: queued(None)}))
    assert reads.read == {"db.a"}


def test_a_condition_that_only_the_offset_shows_is_known_beside_a_request_without_report() -> None:
    chunks = chunk(**{COLLECTIONS: queued("id > 1")}), chunk(scan("db.a", INCREMENTAL))
    assert read([asked("incremental", "db.a")], *chunks) == []


def test_a_request_by_which_a_table_could_not_be_read_is_over() -> None:
    both = [asked("incremental", "db.a", **CHOSEN), asked("incremental", "db.a")]
    refused = chunk(scan("db.a", INCREMENTAL, "SQL_EXCEPTION"))
    assert read(both, refused) == []
    assert read(both[1:], refused) == []
    assert read(both, refused, chunk(scan("db.a", INCREMENTAL))) == ["db.a"]


def test_a_signal_that_is_known_in_two_ways_is_one_request() -> None:
    chosen, whole = asked("incremental", "db.a", **CHOSEN), asked("incremental", "db.a")
    again = replace(chosen, data=(chosen.data or "").replace(" ", ""))
    reports = [chunk(scan("db.a", INCREMENTAL)), chunk(scan("db.a", INCREMENTAL))]
    assert read([chosen, again, whole], *reports) == ["db.a"]
    assert read([chosen, replace(chosen, id="another"), whole], *reports) == []


@pytest.mark.parametrize("way", ["signal", "report"])
def test_incremental_snapshots_that_were_stopped_are_over(way: str) -> None:
    chosen, whole = asked("incremental", "db.a", **CHOSEN), asked("incremental", "db.a")
    stop = lines(NOTES, {"aggregate_type": INCREMENTAL, "type": "ABORTED"})
    if way == "signal":
        stop = row(Signal("t", "stop-snapshot", '{"type": "incremental"}'))
    chunks = chunk(row(chosen)), chunk(stop), chunk(row(whole)), chunk(scan("db.a", INCREMENTAL))
    assert read([], *chunks) == ["db.a"]
    going = chunk(**{COLLECTIONS: queued("id > 1")})
    assert read([], *chunks[:3], going, chunks[3]) == [], "by the offset it was not stopped"


def test_rows_of_a_signal_table_whose_topic_has_another_name_are_seen() -> None:
    config = replace(CONFIG, properties={**CONFIG.properties, "signal.data.collection": "ORCLPDB1.C##DBZ.SIG$"})
    assert signal_topic(config) == "shop.C__DBZ.SIG_"
    assert signal_topic(replace(CONFIG, properties={})) == ""


def test_the_first_snapshot_is_no_request() -> None:
    """It may read chosen rows, by `snapshot.select.statement.overrides`."""
    begin, end = (
        lines(NOTES, {"aggregate_type": "Initial Snapshot", "type": kind}) for kind in ("STARTED", "COMPLETED")
    )
    handed = [asked("blocking", "db.a")]
    assert read(handed, chunk(begin, scan("db.a"), end)) == []
    assert read(handed, chunk(begin, scan("db.a"), end), chunk(begin, scan("db.a"), end)) == ["db.a"]


@pytest.mark.parametrize("kind", ["incremental", "blocking"])
def test_a_request_that_comes_again_once_it_was_carried_out_is_another_one(kind: str) -> None:
    chosen, whole = asked(kind, "db.a", **CHOSEN), asked(kind, "db.a")
    report = scan("db.a", INCREMENTAL if kind == "incremental" else "Blocking Snapshot")
    first = [chunk(row(chosen)), chunk(report), chunk(row(chosen)), chunk(row(whole)), chunk(report)]
    assert read([], *first) == []
    assert read([], *first, chunk(report)) == ["db.a"]
    refused = scan("db.a", INCREMENTAL, "SQL_EXCEPTION")
    again = asked("incremental", "db.a")
    assert read([], chunk(row(again)), chunk(refused), chunk(row(again)), chunk(scan("db.a", INCREMENTAL))) == ["db.a"]


def test_a_stop_of_other_tables_ends_no_request() -> None:
    stop = row(Signal("x", "stop-snapshot", json.dumps({"type": "incremental", "data-collections": ["db.b"]})))
    asks = [row(asked("incremental", "db.a", **CHOSEN)), row(asked("incremental", "db.a"))]
    report = scan("db.a", INCREMENTAL)
    first = chunk(*asks, **{COLLECTIONS: queued("id > 1", None)})
    assert read([], first, chunk(stop, report, **{COLLECTIONS: queued(None)})) == []


def test_the_first_snapshot_of_a_connector_that_starts_over_is_no_request() -> None:
    begin, end = (
        lines(NOTES, {"aggregate_type": "Initial Snapshot", "type": kind}) for kind in ("STARTED", "COMPLETED")
    )
    reads = RequestedReads(CONFIG, [asked("blocking", "db.a")], [({}, {"file": "x", "pos": "1"})])
    reads.take(chunk(begin, scan("db.a"), end))
    assert reads.read == set()
    reads.take(chunk(scan("db.a")))
    assert reads.read == {"db.a"}
