"""Of several comparisons of one table one has its turn; nobody waits for ever for one that died."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.errors import CaptureNotReadyError, LakeConflictError, LakeError
from cdc_assets.lake.location import Location
from cdc_assets.reconcile import turn
from cdc_assets.reconcile.progress import Pass
from cdc_assets.reconcile.subject import Subject
from cdc_assets.reconcile.turn import Turns
from cdc_assets_tests.unit.reconcile.world import World
from mssql_standin.control import StandIn

TOPIC = "shop.SalesDb.dbo.t"


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Turns:
    for name, seconds in (("_BEAT_S", 0.1), ("_DEAD_S", 3.0), ("_PAUSE_S", 0.05)):
        monkeypatch.setattr(turn, name, seconds)
    return Turns(Location(str(tmp_path)), "shop", SystemClock())


def left_by_the_dead(lake: Path, topic: str = TOPIC) -> None:
    folder = lake / "shop.__reconciled"
    folder.mkdir(exist_ok=True)
    for end in (".turn", ".beat"):
        (folder / f"{topic}.0123{end}").write_bytes(b"of long ago")


def test_turns_of_a_table_follow_one_another(turns: Turns) -> None:
    inside, most = [0], [0]
    lock = threading.Lock()

    def compare(_: int) -> None:
        with turns.taken(TOPIC, 300):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            threading.Event().wait(0.02)
            with lock:
                inside[0] -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(compare, range(18)))
    assert most == [1]


def test_the_turn_of_a_dead_process_ends(turns: Turns, tmp_path: Path) -> None:
    left_by_the_dead(tmp_path)
    with turns.taken(TOPIC, 0.1):
        assert len(list((tmp_path / "shop.__reconciled").glob("*.turn"))) == 1
    assert not list((tmp_path / "shop.__reconciled").iterdir())


def test_another_table_is_not_waited_for(turns: Turns, tmp_path: Path) -> None:
    left_by_the_dead(tmp_path, f"{TOPIC}.archive")
    with turns.taken(TOPIC, 0.1):
        left = {path.name for path in (tmp_path / "shop.__reconciled").glob("*.turn")}
    assert f"{TOPIC}.archive.0123.turn" in left


def test_one_that_lives_is_waited_for_so_long_and_no_longer(turns: Turns) -> None:
    with turns.taken(TOPIC, 0.1) as first:
        with pytest.raises(CaptureNotReadyError, match="compare again when it has ended"), turns.taken(TOPIC, 0.1):
            pass
        first.require()


def test_one_that_stood_still_learns_that_its_turn_has_ended(turns: Turns, tmp_path: Path) -> None:
    """Whatever befalls it then: the next one has removed what it had staged."""

    @contextmanager
    def overtaken() -> Iterator[turn.Turn]:
        with turns.taken(TOPIC, 0.1) as own:
            for path in (tmp_path / "shop.__reconciled").iterdir():
                path.unlink()
            yield own

    with overtaken() as own, pytest.raises(LakeConflictError, match="compare again"):
        own.require()
    with pytest.raises(LakeConflictError, match="compare again"), overtaken():
        raise LakeError("Staged rows cannot be read.")


@pytest.mark.long
def test_two_comparisons_of_a_table_at_once_do_not_hinder_each_other(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one begins while the first one has rows staged, and does its work when that has ended."""
    rows = ", ".join(f"({at}, N'row {at}')" for at in range(1, 31))
    world = World(server, str(tmp_path), "id int NOT NULL PRIMARY KEY, note nvarchar(50)", rows)
    compare_tasks, second = Subject.compare_tasks, []
    pool = ThreadPoolExecutor(1)

    def beside(self: Subject, *args: Any) -> Any:
        if not second:
            second.append(pool.submit(world.reconcile, repair=True))
            wait(second, timeout=3.0)
        return compare_tasks(self, *args)

    world.change("UPDATE dbo.t SET note = N'later than these' WHERE id = 5")
    monkeypatch.setattr(Subject, "compare_tasks", beside)
    world.behind_the_log("UPDATE dbo.t SET note = N'changed silently' WHERE id = 7")
    world.behind_the_log("DELETE FROM dbo.t WHERE id = 3")
    first: Pass = world.reconcile(repair=True)
    after: Pass = second[0].result()
    assert (first.differing, first.asked, first.absent, first.removed) == (2, 1, 1, 1)
    assert (after.differing, after.absent, after.removed, after.ended) == (1, 0, 0, True)
    assert len([row for row in world.versions() if row["id"] == 3]) == 1
    world.follow()
    world.follow()
    assert world.reconcile().differing == 0
    assert [path.name for path in (tmp_path / "shop.__reconciled").iterdir()] == [f"{world.topic}.json"]
