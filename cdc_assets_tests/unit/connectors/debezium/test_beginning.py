"""A connector that begins anew with a snapshot of empty tables tells it with its first records, and once."""

import json
import socket
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from cdc_assets.connectors.debezium import child
from cdc_assets.connectors.debezium.child import EngineProcess
from cdc_assets.connectors.debezium.frames import receive

READS = {"started": True, "snapshot": False}


class Encoder:
    """Records of the log."""

    def held(self) -> int:
        return 0

    def encode(self, records: Any, everything: bool) -> bytes:
        return json.dumps({"anew": False, "unfinished": False, "rows": 1}).encode()

    def lastEvent(self) -> None:  # noqa: N802 - Java's name
        return None

    def body(self) -> bytes:
        return b""


def told(folder: Path, count: int = 3, **properties: str) -> list[bool]:
    """Whether each chunk says that the connector has begun anew."""
    (folder / "history.jsonl").touch()
    ours, other = socket.socketpair()
    with ours, other:
        process = EngineProcess(other, folder, {"properties": {k.replace("__", "."): v for k, v in properties.items()}})
        process._encoder = Encoder()
        found = []
        for _ in range(count):
            process._taken.release()
            process._send([], everything=True)
            found.append(receive(ours)[0]["anew"])
        return found


def reports(patch: pytest.MonkeyPatch, *progress: dict[str, bool]) -> None:
    """Have the connector's metrics report this, and the last of it from then on."""
    left = list(progress)
    patch.setattr(child, "progress", lambda **_: left.pop(0) if len(left) > 1 else left[0])


def test_a_snapshot_without_rows_is_told_with_the_first_records_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports(monkeypatch, READS | {"snapshotted": True})
    assert told(tmp_path, snapshot__mode="when_needed") == [True, False, False]


def test_what_comes_before_the_log_is_read_tells_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {"started": False, "snapshot": True, "snapshotted": False}
    reports(monkeypatch, runs, READS | {"snapshotted": True})
    assert told(tmp_path, snapshot__mode="when_needed") == [False, True, False]


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_a_connector_that_reads_on_tells_nothing_though_a_snapshot_is_requested_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    reports(monkeypatch, READS | {"snapshotted": False}, READS | {"snapshotted": True})
    assert told(tmp_path, snapshot__mode=mode) == [False, False, False]


BASED = "snapshot__mode__configuration__based__snapshot__on__data__error"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"snapshot__mode": "recovery"}, False),
        ({"snapshot__mode": "configuration_based"}, False),
        ({"snapshot__mode": "configuration_based", BASED: "true"}, True),
    ],
)
def test_a_snapshot_of_structures_is_none_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], expected: bool
) -> None:
    """The connector reads the structures again, and goes on where it was."""
    reports(monkeypatch, READS | {"snapshotted": True})
    assert told(tmp_path, 1, **properties) == [expected]


def test_only_who_holds_the_lock_notes_how_the_connector_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the loop could note it anew when a chunk has just told it, and the next one would record a loss that there was none of."""
    ours, other = socket.socketpair()
    with ours, other:
        process = EngineProcess(other, tmp_path, {"properties": {"snapshot.mode": "when_needed"}})
        process._encoder, waits, locked = Encoder(), iter((False, False, True)), list[bool]()

        def progress(**_: bool) -> dict[str, bool]:
            locked.append(process._lock.locked())
            return READS | {"snapshotted": True}

        monkeypatch.setattr(child, "progress", progress)
        monkeypatch.setattr(child, "_java", lambda _: MagicMock())
        monkeypatch.setattr(process, "_build", MagicMock())
        monkeypatch.setattr(process, "_listen", lambda: None)
        monkeypatch.setattr(process._done, "wait", lambda _: next(waits))
        monkeypatch.setattr(process._done, "is_set", lambda: True)
        process.run()
    assert locked == [True]
    assert process._is_after_snapshot
