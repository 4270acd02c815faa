"""Files that are packed or copied under their final names: such a copy is shorter than the original until it is whole."""

import gzip
import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from cdc_assets.assembly.engine import run_engine
from cdc_assets.connectors.reader import files
from cdc_assets.connectors.reader.known_files import KnownFiles, Progress
from cdc_assets_tests.unit.connectors.reader.trial import Trial

COUNT = 300
_CHANCE = random.Random(1)  # noqa: S311 - texts that are hard to pack
ROWS = [{"id": number, "text": f"{_CHANCE.getrandbits(600):x}"} for number in range(COUNT)]
LONG_AGO = 1_700_000_000


def ids(trial: Trial) -> list[int]:
    return [event["value"]["id"] for event in trial.held("t")]


def copy_of(trial: Trial, name: str) -> bytes:
    """What a whole copy of the original holds."""
    data = (trial.events / "x.json").read_bytes()
    return gzip.compress(data) if name.endswith(".gz") else data


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A folder with a file that was read long after it was written."""
    monkeypatch.setattr(files, "_LIST_EVERY_S", 0.05)
    trial = Trial(tmp_path, files__topic="t", stream__idle__timeout__ms="200")
    trial.write("x.json", *ROWS)
    os.utime(trial.events / "x.json", (LONG_AGO, LONG_AGO))
    trial.run()
    return trial


@pytest.mark.combinations
@pytest.mark.parametrize("size", [0, 5, 60, 250, 4000, 0.5, 0.999])
@pytest.mark.parametrize("name", ["x.json.gz", "a.json.gz", "a.json", "y.json"])
def test_a_copy_of_which_a_part_is_there_is_not_read(trial: Trial, name: str, size: float) -> None:
    whole = copy_of(trial, name)
    (trial.events / name).write_bytes(whole[: int(size if size >= 1 else size * len(whole))])
    trial.run()
    (trial.events / name).write_bytes(whole)
    (trial.events / "x.json").unlink()
    trial.run()
    with (trial.events / name).open("ab") as file:
        file.write(gzip.compress(b'{"id": 999}\n') if name.endswith(".gz") else b'{"id": 999}\n')
    trial.run()
    assert ids(trial) == [*range(COUNT), 999]


@pytest.mark.parametrize("name", ["x.json.gz", "a.json"])
def test_a_copy_grows_while_a_run_reads(trial: Trial, name: str) -> None:
    whole = copy_of(trial, name)
    trial.write("u.json", {"id": 1000})

    def half() -> None:
        (trial.events / name).write_bytes(whole[: len(whole) // 2])
        trial.write("u.json", {"id": 1001})

    def all_of_it() -> None:
        (trial.events / name).write_bytes(whole)
        (trial.events / "x.json").unlink()
        trial.write("u.json", {"id": 1002})

    left = [half, all_of_it]
    trial.properties["engine.batch.rows"] = "1"
    trial.configure()
    run_engine(trial.config, trial.tables(), lambda _: left.pop(0)() if left else None)
    assert not left
    assert ids(trial) == [*range(COUNT), 1000, 1001, 1002]


@pytest.mark.parametrize("name", ["x.json.gz", "a.json"])
def test_a_copy_is_ended_and_the_original_deleted_between_its_opening_and_its_reading(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    whole = copy_of(trial, name)
    (trial.events / name).write_bytes(whole[: len(whole) // 2])
    looked, is_being_copied = list[int](), files.FileSource._is_being_copied

    def ended_meanwhile(source: files.FileSource, path: str, content: Any) -> bool:
        if not looked:
            looked.append(1)
            (trial.events / name).write_bytes(whole)
            (trial.events / "x.json").unlink()
        return is_being_copied(source, path, content)

    monkeypatch.setattr(files.FileSource, "_is_being_copied", ended_meanwhile)
    trial.run()
    assert looked
    assert ids(trial) == [*range(COUNT)]


def test_a_copy_is_written_for_longer_than_a_look_takes(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time in the listing is that of a moment long before it is read."""
    (trial.events / "a.json").write_bytes(copy_of(trial, "a.json")[:9000])
    list_files = files.list_files

    def listed_long_ago(*given: Any) -> list[fs.FileInfo]:
        found = list_files(*given)
        return [fs.FileInfo(info.path, info.type, size=info.size, mtime_ns=LONG_AGO * 10**9) for info in found]

    monkeypatch.setattr(files, "list_files", listed_long_ago)
    trial.run()
    assert ids(trial) == [*range(COUNT)]


def test_a_beginning_that_is_left_as_it_is_is_another_file(trial: Trial) -> None:
    trial.write("a.json", *ROWS[:7])
    trial.run()
    assert ids(trial) == [*range(COUNT)]
    os.utime(trial.events / "a.json", (LONG_AGO, LONG_AGO))
    trial.run()
    assert ids(trial) == [*range(COUNT), *range(7)]


def test_a_packed_copy_without_its_end_waits_for_it(trial: Trial) -> None:
    whole = copy_of(trial, "x.json.gz")
    (trial.events / "x.json.gz").write_bytes(whole[: len(whole) // 2])
    os.utime(trial.events / "x.json.gz", (LONG_AGO, LONG_AGO))
    trial.run()
    assert ids(trial) == [*range(COUNT)]


def test_a_file_that_begins_like_another_and_has_an_event_of_its_own_is_read_at_once(trial: Trial) -> None:
    trial.write("a.json", *ROWS[:7], {"id": 999})
    trial.run()
    assert ids(trial) == [*range(COUNT), *range(7), 999]


def test_originals_are_deleted_one_by_one_while_a_file_is_compared_with_them(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a retention job does it: each look finds that one has been deleted since its listing."""
    left = [trial.events / f"x{number}.json" for number in range(3)]
    for number, path in enumerate(left):
        trial.write(path.name, *ROWS[:9], {"id": 1000 + number})
    trial.run()
    longer_than = KnownFiles.longer_than

    def one_is_deleted(known: KnownFiles, path: str, content: Any) -> Any:
        if left:
            left.pop().unlink()
        return longer_than(known, path, content)

    monkeypatch.setattr(KnownFiles, "longer_than", one_is_deleted)
    trial.write("a.json", ROWS[0], {"id": 2000})
    trial.write("b.json", {"id": 2001})
    trial.run()
    assert not left
    read = [number for first in (1000, 1001, 1002) for number in (*range(9), first)]
    assert ids(trial) == [*range(COUNT), *read, 0, 2000, 2001], "nor is what comes next read before"


def record_as_before(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the original recorded as in a lake that was written before, without its first line."""
    with monkeypatch.context() as patch:
        patch.setattr(files, "Progress", lambda *given, first=0, **more: Progress(*given, **more))
        trial.write("x.json", {"id": 999})
        trial.run()


def test_a_file_that_was_recorded_without_its_first_line_is_opened_once_for_comparisons(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_as_before(trial, monkeypatch)
    opened, content_of = list[str](), files.FileSource._content

    def counted(source: files.FileSource, path: str) -> Any:
        opened.append(path)
        return content_of(source, path)

    monkeypatch.setattr(files.FileSource, "_content", counted)
    for number in range(1000, 1005):
        trial.write(f"{number}/x.json", {"id": number})
    trial.run()
    assert ids(trial) == [*range(COUNT), 999, *range(1000, 1005)]
    trial.write("1005/x.json", {"id": 1005})
    trial.run()
    assert opened.count("x.json") == 1, "neither by a later run"


@pytest.mark.parametrize("name", ["x.json.gz", "archive/x.json", "a.json"])
def test_a_file_that_was_recorded_without_its_first_line_is_known_by_its_name_or_its_first_bytes(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    record_as_before(trial, monkeypatch)
    (trial.events / name).parent.mkdir(exist_ok=True)
    whole = copy_of(trial, name)
    (trial.events / name).write_bytes(whole[: len(whole) // 2])
    trial.run()
    (trial.events / name).write_bytes(whole)
    (trial.events / "x.json").unlink()
    trial.run()
    assert sorted(ids(trial)) == [*range(COUNT), 999]
