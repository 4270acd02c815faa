"""Files that get another name, or are replaced, while a run reads: between any two of its steps."""

import gzip
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import fs

from cdc_assets.assembly.engine import run_engine
from cdc_assets.connectors.reader import content, files
from cdc_assets.connectors.reader.content import Content
from cdc_assets.core.interruption import Interrupted, listening
from cdc_assets.errors import ConnectionLostError, LakeError
from cdc_assets_tests.unit.connectors.reader.trial import Trial


def t(number: int) -> dict[str, Any]:
    return {"topic": "t", "value": {"id": number}}


def u(number: int) -> dict[str, Any]:
    return {"topic": "u", "value": {"id": number}}


def ids(trial: Trial, topic: str = "t") -> list[int]:
    return [event["value"]["id"] for event in trial.held(topic)]


def move(trial: Trial, old: str, new: str) -> None:
    (trial.events / new).parent.mkdir(exist_ok=True)
    (trial.events / old).rename(trial.events / new)


def run(trial: Trial, *after_batches: Callable[[], None]) -> None:
    """A run, and what happens to its folder after each of its first batches."""
    left = list(after_batches)
    try:
        run_engine(trial.config, trial.tables(), lambda _: left.pop(0)() if left else None)
    finally:
        assert not left


def correct(trial: Trial, name: str) -> None:
    file = trial.events / name
    file.write_text(file.read_text().replace("{broken", '{"topic": "t", "value": {"id": 5}}'))


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    monkeypatch.setattr(files, "_LIST_EVERY_S", 0.05)
    return Trial(tmp_path, stream__idle__timeout__ms="400", engine__batch__rows="1")


@pytest.mark.parametrize("name", ["a/x-1.json", "archive/x.json"])
def test_a_file_that_stopped_stops_under_its_new_name(trial: Trial, name: str) -> None:
    """What was read of it in vain is not in the lake, though the run has seen the file's end."""
    trial.write("a/x.json", t(1), "{broken", t(2))
    trial.write("b/u.json", u(1))

    def rotate() -> None:
        move(trial, "a/x.json", name)
        trial.write("b/u.json", u(2))

    with pytest.raises(LakeError, match=r"x\.json line 2"):
        run(trial, rotate)
    with pytest.raises(LakeError, match=r"x.*\.json line 2"):
        trial.run()
    correct(trial, name)
    trial.run()
    assert (ids(trial), ids(trial, "u")) == ([1, 5, 2], [1, 2])


@pytest.mark.parametrize("name", ["a/y-1.json", "y.away"])
def test_a_file_that_waits_for_one_that_stopped_is_lost_under_no_name(trial: Trial, name: str) -> None:
    trial.write("a/x.json", t(1), "{broken", t(2))
    trial.write("a/y.json", t(3), t(4))
    trial.write("b/u.json", u(1))

    def rotate() -> None:
        move(trial, "a/y.json", name)
        trial.write("b/u.json", u(2))

    with pytest.raises(LakeError):
        run(trial, rotate)
    if name == "y.away":
        move(trial, name, "a/y.json")
    correct(trial, "a/x.json")
    trial.run()
    assert (ids(trial), ids(trial, "u")) == ([1, 5, 2, 3, 4], [1, 2])


def test_a_file_that_is_away_before_its_end_and_comes_under_another_name_goes_on(trial: Trial) -> None:
    trial.write("a/x.json", t(1), '{"topic": "t", "va', end="")
    trial.write("b/u.json", u(1))

    def leave() -> None:
        move(trial, "a/x.json", "x.away")
        trial.write("b/u.json", u(2))

    def come() -> None:
        move(trial, "x.away", "a/x-1.json")
        trial.write("a/x-1.json", 'lue": {"id": 2}}')
        trial.write("b/u.json", u(3))

    with pytest.raises(LakeError, match="the file is gone"):
        run(trial, leave, come)
    trial.run()
    assert (ids(trial), ids(trial, "u")) == ([1, 2], [1, 2, 3])


def test_a_file_that_is_renamed_while_folders_are_listed_is_no_new_one(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that it comes into is listed before, and the one that it was in is listed after."""
    trial.write("a/x.json", t(1), t(2))
    trial.run()
    listed, list_files = list[int](), files.list_files

    def list_meanwhile(*given: Any) -> list[fs.FileInfo]:
        listed.append(1)
        found = list_files(*given)
        return [info for info in found if not info.path.startswith("a/")] if len(listed) == 2 else found

    monkeypatch.setattr(files, "list_files", list_meanwhile)
    move(trial, "a/x.json", "a/x-1.json")
    trial.run()
    assert len(listed) > 2
    assert ids(trial) == [1, 2]


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_file_that_is_rotated_between_its_listing_and_its_reading_goes_on(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    trial.write("x.json", t(1))
    trial.write("y.json", t(2))
    trial.run()
    trial.write("y.json", t(3))
    rotated, read = list[int](), files.FileSource._file

    def read_later(source: files.FileSource, info: fs.FileInfo) -> Iterator[list[Any]]:
        if info.path == "y.json" and not rotated:
            rotated.append(1)
            move(trial, "y.json", "y-1.json")
            if is_replaced:
                trial.write("y.json", t(4))
        yield from read(source, info)

    monkeypatch.setattr(files.FileSource, "_file", read_later)
    trial.run()
    assert ids(trial) == ([1, 2, 3, 4] if is_replaced else [1, 2, 3])


@pytest.mark.parametrize("is_known", [True, False])
def test_a_file_that_is_replaced_between_two_of_its_readings_is_not_read_in_its_middle(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    if is_known:
        trial.write("y.json", t(1), t(2))
        trial.run()
        trial.write("y.json", t(3))
    else:
        trial.write("y.json", t(1), t(2), t(3))
    rotated = list[int]()

    def rotate() -> None:
        if not rotated:
            rotated.append(1)
            move(trial, "y.json", "y-1.json")
            trial.write("y.json", t(4), t(5), t(6), t(7))

    verified, begun = files.KnownFiles.verified, Content.__init__

    def rotated_after_comparison(known: files.KnownFiles, path: str, now: Content) -> int | None:
        found = verified(known, path, now)
        if found:
            rotate()
        return found

    def rotated_after_first_bytes(now: Content, *given: Any) -> None:
        begun(now, *given)
        rotate()

    if is_known:
        monkeypatch.setattr(files.KnownFiles, "verified", rotated_after_comparison)
    else:
        monkeypatch.setattr(Content, "__init__", rotated_after_first_bytes)
    trial.run()
    assert rotated
    assert sorted(ids(trial)) == [1, 2, 3, 4, 5, 6, 7]


def test_a_line_that_is_appended_while_a_short_file_is_opened_makes_it_no_other_file(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.write("x.json", t(1))
    blocks = Content.blocks

    def append_meanwhile(found: Content, offset: int) -> Any:
        monkeypatch.setattr(Content, "blocks", blocks)
        trial.write("x.json", t(2))
        return blocks(found, offset)

    monkeypatch.setattr(Content, "blocks", append_meanwhile)
    trial.run()
    trial.write("x.json", t(3))
    trial.run()
    assert ids(trial) == [1, 2, 3]


def test_a_file_goes_on_whose_name_a_shorter_one_with_the_same_beginning_has(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As lines that carry their schema make files begin alike."""
    monkeypatch.setattr(content, "_BLOCK", 5200)

    def wide(number: int) -> dict[str, Any]:
        return {"topic": "t", "value": {"text": "x" * 5000, "id": number}}

    trial.write("x.json", wide(1), *map(t, range(2, 20)))
    rotated = list[int]()

    def rotate(_: object) -> None:
        if not rotated and len(ids(trial)) == 19:
            rotated.append(1)
            move(trial, "x.json", "x-1.json")
            trial.write("x-1.json", t(20))
            trial.write("x.json", wide(21))

    run_engine(trial.config, trial.tables(), rotate)
    assert rotated
    assert sorted(ids(trial)) == [*range(1, 22)]


def test_a_file_whose_packed_copy_is_listed_beside_it_is_not_read_twice(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who packs it gives the copy its time, and removes it in the next moment, when it is listed and the copy is not yet read."""
    trial.write("x.json", t(1), t(2))
    os.utime(trial.events / "x.json", (1_700_000_000, 1_700_000_000))
    trial.run()
    packed, list_files = trial.events / "x.json.gz", files.list_files
    listed = list[int]()

    def list_meanwhile(*given: Any) -> list[fs.FileInfo]:
        listed.append(1)
        if len(listed) != 2:  # the first look of a run reads nothing
            return list_files(*given)
        packed.write_bytes(gzip.compress((trial.events / "x.json").read_bytes()))
        os.utime(packed, (1_700_000_000, 1_700_000_000))
        found = list_files(*given)
        (trial.events / "x.json").unlink()
        return found

    monkeypatch.setattr(files, "list_files", list_meanwhile)
    trial.run()
    trial.run()
    assert ids(trial) == [1, 2]


def test_a_run_that_is_to_end_does_not_wait_for_a_large_folder() -> None:
    def listed(_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    place: Any = SimpleNamespace(root="", existing=lambda _: SimpleNamespace(get_file_info=listed))
    begun = time.monotonic()
    with pytest.raises(Interrupted), listening():
        files.list_files(place, ".*", files.KnownFiles({}))
    assert time.monotonic() - begun < 9


def test_a_run_that_is_to_end_does_not_read_a_large_file_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "_BLOCK", 10)
    (tmp_path / "x.json").write_bytes(b"a" * 1000)
    found = Content(fs.LocalFileSystem(), str(tmp_path / "x.json"))

    def read() -> None:
        with listening():
            os.kill(os.getpid(), signal.SIGTERM)
            found.checksums([1000])
            pytest.fail("it was read to its end")

    with pytest.raises(Interrupted):
        read()


def test_a_folder_in_a_store_that_is_away_is_tried_again(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka's topics are; a run that follows would end for good."""
    trial.write("x.json", t(1))

    class Away:
        def get_file_info(self, _: object) -> None:
            raise OSError("When listing objects: connection reset by peer")

    monkeypatch.setattr("cdc_assets.lake.location.Location.existing", lambda *_: Away())
    with pytest.raises(ConnectionLostError, match=r"files\.path") as raised:
        trial.run()
    assert raised.value.retryable
