"""What the tables of many mirrors lack is found from outside, in a time that does not grow with their number."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_assets.config.settings import LakeSettings
from cdc_assets.lake import audit as lake_audit
from cdc_assets.lake.audit import Turns
from cdc_assets.lake.location import Location
from cdc_assets.mirror import audit
from cdc_assets.mirror.audit import damaged_mirrors, directories, marks_of, seen_losses
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.mirror.ledger import MirrorState, PlannedStep
from cdc_assets_tests.patience import Patience

TOPICS = [f"shop.t{number:02d}" for number in range(20)]
LOST = TOPICS[13]


@pytest.fixture
def tables(tmp_path: Path) -> MirrorTables:
    """Of each mirror both, with a commit after that of their rows."""
    for number, topic in enumerate(TOPICS):
        for directory in directories(topic):
            if number:
                shutil.copytree(tmp_path / directories(TOPICS[0])[directory.endswith("history")], tmp_path / directory)
            else:
                for value in (1, 2):
                    write_deltalake(str(tmp_path / directory), pa.table({"id": [value]}), mode="append")
    return MirrorTables(Location(str(tmp_path)), "shop", LakeSettings(str(tmp_path)))


@pytest.fixture
def known(tables: MirrorTables) -> Mapping[str, MirrorState]:
    return {topic: MirrorState(step=1, lsn="1", marks=marks_of(tables, topic)) for topic in TOPICS}


def older_file(tables: MirrorTables, topic: str) -> Path:
    """One that the newest commit does not name."""
    folder = Path(tables.location.root) / directories(topic)[1]
    (path,) = DeltaTable(str(folder), version=0).file_uris()
    return folder / path.rpartition("/")[2]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tables of which anything was read."""
    found: list[str] = []
    for name in ("matches_mark", "examine"):
        inside = getattr(lake_audit, name)

        def noted(tables: object, directory: str, *more: object, inside: object = inside) -> object:
            found.append(directory)
            return inside(tables, directory, *more)  # type: ignore[operator]

        monkeypatch.setattr(lake_audit, name, noted)
    return found


def test_folder_that_is_gone_is_found_though_there_is_time_for_nothing(
    tables: MirrorTables, known: Mapping[str, MirrorState], read: list[str]
) -> None:
    assert seen_losses(tables, lambda: known, TOPICS, seconds=0.0, turns=Turns()) == {}
    assert read == [], "a lake of a thousand mirrors is listed once"
    gone = directories(LOST)[0]
    shutil.rmtree(Path(tables.location.root) / gone)
    (found,) = seen_losses(tables, lambda: known, TOPICS, seconds=0.0, turns=Turns()).items()
    assert (found[0], [(loss.directory, loss.what) for loss in found[1]]) == (LOST, [(gone, "is gone")])
    assert read == [gone]


def test_all_tables_are_examined_in_turns_and_what_lacks_something_each_time(
    tables: MirrorTables, known: Mapping[str, MirrorState], read: list[str]
) -> None:
    turns, patience, away = Turns(), Patience(60), Path(tables.location.root) / "away"
    older_file(tables, LOST).rename(away)
    while not seen_losses(tables, lambda: known, TOPICS, seconds=0.005, turns=turns):
        assert patience
    read.clear()
    assert list(seen_losses(tables, lambda: known, TOPICS, seconds=0.0, turns=turns)) == [LOST]
    assert read == [directories(LOST)[1]]
    away.rename(older_file(tables, LOST))
    assert not seen_losses(tables, lambda: known, TOPICS, seconds=0.0, turns=turns)
    assert not seen_losses(tables, lambda: known, TOPICS, seconds=None, turns=turns)
    assert len(set(read)) == 2 * len(TOPICS)


def test_step_that_is_made_meanwhile_is_no_loss(tables: MirrorTables, known: Mapping[str, MirrorState]) -> None:
    """It may remove rows, and the record that was read does not have it."""
    older_file(tables, LOST).unlink()
    step = PlannedStep(LOST, 2, "1", "2", 1, 2, "")
    for state in (replace(known[LOST], step=2, lsn="2"), replace(known[LOST], pending=step)):
        records = [{**known, LOST: state}, known]
        assert not seen_losses(tables, records.pop, TOPICS, seconds=None, turns=Turns())
    assert not seen_losses(tables, lambda: {**known, LOST: state}, TOPICS, seconds=None, turns=Turns())


def test_run_for_a_mirror_examines_it_though_time_is_over(
    tables: MirrorTables, known: Mapping[str, MirrorState], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would leave what it was started for, which looks right at first sight."""
    older_file(tables, LOST).unlink()
    monkeypatch.setattr(lake_audit, "matches_mark", lambda *_: True)
    monkeypatch.setattr(audit, "_SECONDS", 0.0)
    assert damaged_mirrors(tables, known, TOPICS) == set()
    assert damaged_mirrors(tables, known, TOPICS, [LOST]) == {LOST}
