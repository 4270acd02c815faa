"""What is recorded of files that are gone: not for ever, and enough for those that come back."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.reader import content, files
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.connectors.reader.trial import STEPS, Trial


def ids(trial: Trial) -> list[int]:
    return sorted(event["value"]["id"] for event in trial.held("t"))


def recorded(trial: Trial) -> list[str]:
    state = EngineOverview(trial.config).state
    return sorted(str(partition["file"]) for partition, _ in state.pairs())


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path, files__topic="t")


@pytest.mark.long
@pytest.mark.parametrize("step", ["", *STEPS])
def test_the_record_does_not_grow_with_files_that_are_gone(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(files, "_MAX_GONE", 3)
    trial.write("stays.json", {"id": 0})
    for number in range(1, 9):
        trial.write(f"{number}.json", {"id": number})
        if step:
            with suppress(PowerCutError), cut_at(step):
                trial.run()
        trial.run()
        (trial.events / f"{number}.json").unlink()
    trial.run()
    assert recorded(trial) == ["6.json", "7.json", "8.json", "stays.json"]
    assert ids(trial) == list(range(9))


def test_the_former_names_of_renamed_files_are_forgotten(trial: Trial) -> None:
    for number in range(4):
        trial.write("shop.json", {"id": number})
        trial.run()
        (trial.events / "shop.json").rename(trial.events / f"shop-{number}.json")
    trial.run()
    assert recorded(trial) == [f"shop-{number}.json" for number in range(4)]
    trial.write("shop.json", {"id": 4})
    trial.run()
    assert ids(trial) == [0, 1, 2, 3, 4]


def test_a_folder_that_is_not_mounted_for_a_while_changes_nothing(trial: Trial) -> None:
    trial.write("a.json", {"id": 1})
    trial.write("b.json", {"id": 2})
    trial.run()
    away = trial.events.rename(trial.events.with_name("away"))
    trial.events.mkdir()
    trial.run()
    trial.events.rmdir()
    away.rename(trial.events)
    trial.write("b.json", {"id": 3})
    trial.run()
    assert ids(trial) == [1, 2, 3]


def test_a_file_that_comes_back_is_read_on_where_it_was_read_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(tmp_path, files__topic="t", errors__tolerance="all", engine__batch__rows="1")
    monkeypatch.setattr(content, "_BLOCK", 10)
    monkeypatch.setattr(files, "_MAX_LINES", 1)
    trial.write("a.json", *({"id": number} for number in range(1, 6)))
    with suppress(PowerCutError), cut_at("files-written", 2):
        trial.run()
    assert ids(trial) == [1]
    trial.write("b.json", {"id": 6})
    away = (trial.events / "a.json").rename(tmp_path / "a.json")
    trial.run()
    assert ids(trial) == [1, 6]
    [told] = [event["value"]["reason"] for event in rejected(trial)]
    assert "the file is gone" in told
    away.rename(trial.events / "a.json")
    trial.run()
    assert ids(trial) == [1, 2, 3, 4, 5, 6]


def rejected(trial: Trial) -> list[Any]:
    return trial.held("shop.rejected")
