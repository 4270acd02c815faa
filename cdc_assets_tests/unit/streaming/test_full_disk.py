"""A disk that is full, wherever it gets full: the stream waits, goes on when there is room, and loses nothing."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.steps import listening
from cdc_assets.errors import LakeError, LakeFullError
from cdc_assets.lake.location import Location, trouble
from cdc_assets.ledger import manifest_rows
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer

STEP = 1 if "CDC_LAW_EXAMPLES" in os.environ else 6
"""How many of the moments are left out."""
FULL = 3
"""Writes that find no room; then somebody has made some."""

DELTA_SAYS = "Generic LocalFileSystem error\n  \x1b[31m↳\x1b[0m Unable to copy data to file\n  No space left on device (os error 28)"


class Disk:
    """Lets some writes through, refuses `FULL` of them, and lets all others through."""

    def __init__(self, patch: pytest.MonkeyPatch, room: int) -> None:
        self.room, self.refused = room, 0
        self._refuse(patch, pq.ParquetWriter, "write_table", OSError(errno.ENOSPC, "Error writing bytes to file"))
        self._refuse(patch, DeltaTable, "create_write_transaction", OSError(DELTA_SAYS))
        self._refuse(patch, Path, "write_bytes", OSError(errno.ENOSPC, "No space left on device"))

    def _refuse(self, patch: pytest.MonkeyPatch, owner: type, name: str, error: OSError) -> None:
        write: Callable[..., object] = getattr(owner, name)

        def attempt(*arguments: object, **options: object) -> object:
            self.room -= 1
            if -FULL <= self.room < 0:
                self.refused += 1
                raise error
            return write(*arguments, **options)

        patch.setattr(owner, name, attempt)


@contextmanager
def full_after(room: int) -> Iterator[Disk]:
    with pytest.MonkeyPatch.context() as patch:
        yield Disk(patch, room)


def prepared(path: Path) -> tuple[SimulatedServer, CaptureConfig]:
    server = SimulatedServer()
    tables = [server.create(name, rows=2) for name in ("lines", "orders")]
    server.idle_tick()
    config = make_config(str(path), transaction_metadata=True, slices=2, max_iteration_transactions=2)
    make_capture(server, config).snapshot()
    for key in range(10, 14):
        server.commit(*((table, "insert", key, "a") for table in tables))
    return server, config


def orphans(lake: Path) -> set[str]:
    """Data files that no commit has ever named."""
    return {
        file.name
        for table in lake.glob("shop.[S_]*")
        for log in ["".join(commit.read_text() for commit in (table / "_delta_log").glob("*.json"))]
        for file in table.glob("*.parquet")
        if file.name not in log
    }


@pytest.mark.long
def test_stream_waits_wherever_the_disk_gets_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_rows, "_CHECKPOINT_EVERY", 4)
    ends = 0
    for room in range(1, 90, STEP):
        lake = tmp_path / str(room)
        server, config = prepared(lake)
        capture = make_capture(server, config)
        capture.claim()
        with full_after(room) as disk:
            summary = capture.stream()
        assert (summary.ended, summary.troubled) == ("idle", ())
        for table in server.rows:
            assert [event.key for event in events_of(config, table) if event.op == "c"] == [10, 11, 12, 13]
        assert not orphans(lake), "repetitions leave nothing that takes room"
        ends += disk.refused == 0
        if ends:
            break
    assert ends, "not all writes were refused once"
    assert room > 10


@contextmanager
def tiny_disk(path: Path, size: str) -> Iterator[Path]:
    """A disk of its own; mounting one takes root."""
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@pytest.mark.parametrize("width", [100, 300_000], ids=["small", "wide"])
def test_stream_waits_for_room_on_a_disk_that_is_really_full(tmp_path: Path, width: int) -> None:
    with tiny_disk(tmp_path / "disk", "16m") as disk:
        server, ballast = SimulatedServer(), disk / "ballast"
        table = server.create("orders", rows=2)
        server.idle_tick()
        config = make_config(str(disk / "lake"), max_iteration_transactions=3)
        make_capture(server, config).snapshot()
        notes = {key: os.urandom(width // 2).hex() for key in range(10, 22)}
        for key, note in notes.items():
            server.commit((table, "insert", key, note))
        capture, waits = make_capture(server, config), []
        capture.claim()

        def make_room(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == FULL:
                assert not orphans(disk / "lake"), "repetitions leave nothing that takes room"
                ballast.unlink()

        def fill(name: str) -> None:
            if name == "window-planned" and not waits and not ballast.exists():
                with suppress(OSError), ballast.open("wb", buffering=0) as file:
                    while file.write(b"x" * 4096) == 4096:
                        pass
                server.meanwhile = make_room

        with listening(fill):
            summary = capture.stream()
        assert (summary.ended, summary.troubled, len(waits) >= FULL) == ("idle", (), True)
        found = {event.key: (event.after or {})["note"] for event in events_of(config, table) if event.op == "c"}
        assert found == notes


def test_start_on_a_full_disk_is_reported_and_may_be_repeated(tmp_path: Path) -> None:
    server, config = prepared(tmp_path)
    with full_after(0), pytest.raises(LakeFullError, match=r"Nothing is lost.*free space"):
        make_capture(server, config).stream()
    assert make_capture(server, config).stream().windows == 2


@pytest.mark.parametrize("full", [OSError(errno.EDQUOT, "Disk quota exceeded"), OSError(DELTA_SAYS)])
def test_only_want_of_room_is_waited_for(full: OSError) -> None:
    assert isinstance(trouble("It cannot be written", full, "look"), LakeFullError)
    assert isinstance(trouble("It cannot be written", OSError(errno.EACCES, "Permission denied"), "look"), LakeError)


def test_probe_that_was_killed_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probes = tmp_path / "__probe"
    probes.mkdir()
    (probes / "probe-killed").write_bytes(b"")
    location = Location(str(tmp_path))
    location.check_writable()
    assert [path.name for path in probes.iterdir()] == ["probe-killed"], "it may be at work"
    monkeypatch.setattr("cdc_assets.lake.location._OLD_PROBE_S", -10.0)
    location.check_writable()
    assert not probes.exists()
    with full_after(0), pytest.raises(LakeFullError):
        location.check_writable()
    assert not probes.exists()
