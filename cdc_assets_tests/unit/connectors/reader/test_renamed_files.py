"""Files that are renamed, replaced, packed, removed or half moved: each line arrives once, in its order, or is told."""

import gzip
import json
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import LakeError
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.connectors.reader.trial import STEPS, Trial

COLUMNS = [{"type": "string", "optional": True, "field": f"column_number_{number}"} for number in range(60)]
SCHEMA = {
    "type": "struct",
    "optional": False,
    "fields": [{"type": "int32", "optional": False, "field": "id"}, *COLUMNS],
}


def row(number: int) -> dict[str, Any]:
    """A line that begins as all others of its table, for more than the first bytes of which there is a checksum."""
    return {"schema": SCHEMA, "payload": {"id": number, **{field["field"]: None for field in COLUMNS}}}


def ids(trial: Trial) -> list[int]:
    return [event["value"]["id"] for event in trial.held("t")]


def text(*numbers: int) -> bytes:
    return "".join(json.dumps(row(number)) + "\n" for number in numbers).encode()


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path, files__topic="t")


def test_a_file_that_is_renamed_goes_on(trial: Trial) -> None:
    trial.write("shop.json", row(1), row(2))
    trial.run()
    (trial.events / "shop.json").rename(trial.events / "shop-2026-11-23.json")
    trial.write("shop-2026-11-23.json", row(3))
    trial.write("shop.json", row(4))
    trial.run()
    trial.run()
    assert ids(trial) == [1, 2, 3, 4]
    trial.write("shop.json", row(5))
    trial.run()
    assert ids(trial) == [1, 2, 3, 4, 5]


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_numbers_of_rotated_files_shift(trial: Trial, step: str) -> None:
    """`shop.2.json` was `shop.1.json`, which was `shop.json`; a run dies at each step of seeing it."""
    read = 0
    for _ in range(4):
        read += 2
        for number in (3, 2, 1):
            name = f"shop.{number - 1}.json" if number > 1 else "shop.json"
            with suppress(FileNotFoundError):
                (trial.events / name).rename(trial.events / f"shop.{number}.json")
        trial.write("shop.json", row(read - 1), row(read))
        with suppress(PowerCutError), cut_at(step):
            trial.run()
        trial.run()
    assert ids(trial) == list(range(1, read + 1))


def test_a_file_that_is_packed_after_it_was_read_goes_on(trial: Trial) -> None:
    trial.write("shop.json", row(1), row(2))
    trial.run()
    (trial.events / "shop.json").unlink()
    (trial.events / "shop-1.json.gz").write_bytes(gzip.compress(text(1, 2, 3)))
    trial.run()
    assert ids(trial) == [1, 2, 3]


def test_a_file_that_is_copied_and_cut_goes_on_in_its_copy(trial: Trial) -> None:
    trial.write("shop.json", row(1), row(2))
    trial.run()
    (trial.events / "shop-1.json").write_bytes((trial.events / "shop.json").read_bytes() + text(3))
    (trial.events / "shop.json").write_bytes(text(4, 5, 6, 7))
    trial.run()
    assert ids(trial) == [1, 2, 3, 4, 5, 6, 7]


def test_a_copy_waits_for_its_original_to_be_deleted(trial: Trial) -> None:
    """As an object store renames."""
    trial.write("b.json", row(1), row(2))
    trial.run()
    (trial.events / "a.json").write_bytes(text(1, 2))
    trial.run()
    (trial.events / "b.json").unlink()
    trial.run()
    trial.write("a.json", row(3))
    trial.run()
    assert ids(trial) == [1, 2, 3]


def test_a_copy_that_stays_is_another_file(trial: Trial) -> None:
    for name in ("b.json", "a.json"):
        trial.write(name, row(1))
        os.utime(trial.events / name, (1_700_000_000, 1_700_000_000))
        trial.run()
    assert ids(trial) == [1, 1]


def test_a_file_that_is_like_one_that_was_gone_long_ago_is_another(trial: Trial) -> None:
    trial.write("a.json", row(1))
    trial.run()
    (trial.events / "a.json").unlink()
    trial.run()
    trial.write("b.json", row(1))
    trial.run()
    assert ids(trial) == [1, 1]


def test_what_writers_have_not_ended_is_left_out(trial: Trial) -> None:
    folder = trial.events / "_temporary" / "0"
    folder.mkdir(parents=True)
    for name in ("_temporary/0/part-0.json", ".part-1.json", "part-2.json"):
        (trial.events / name).write_bytes(text(int(name[-6])))
    trial.run()
    assert ids(trial) == [2]
    (folder / "part-0.json").rename(trial.events / "part-0.json")
    trial.run()
    assert ids(trial) == [2, 0]


@pytest.mark.parametrize("many", [1, 2, 5, 6, 9])
def test_another_file_of_the_same_name_is_never_read_in_its_middle(trial: Trial, many: int) -> None:
    """Though it begins with the same schema, and its lines are as long."""
    trial.write("a.json", *map(row, range(100, 105)))
    trial.run()
    (trial.events / "a.json").write_bytes(text(*range(200, 200 + many)))
    with pytest.raises(LakeError, match=r"a\.json.*it is not the file of which 5 lines were read"):
        trial.run()
    assert ids(trial) == [100, 101, 102, 103, 104]


def test_a_row_that_changed_in_the_middle_makes_it_another_file(trial: Trial) -> None:
    trial.write("a.json", *map(row, range(100, 105)))
    trial.run()
    (trial.events / "a.json").write_bytes(text(100, 101, 999, 103, 104, 105))
    with pytest.raises(LakeError, match="it is not the file of which"):
        trial.run()


def test_later_files_of_a_topic_wait_behind_one_that_stops(trial: Trial) -> None:
    trial.write("a-1.json", {"id": 1}, "broken", {"id": 3})
    trial.write("a-2.json", {"id": 30})
    with pytest.raises(LakeError, match=r"a-1\.json line 2"):
        trial.run()
    assert ids(trial) == [1]
    (trial.events / "a-1.json").write_text('{"id": 1}\n{"id":2}\n{"id": 3}\n')
    trial.run()
    assert ids(trial) == [1, 2, 3, 30]


def test_files_that_hold_other_topics_do_not_wait(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    own = {"value": {"id": 1}}
    for topic, name in (("o", "orders/2026/1.json"), ("k", "k+0+1.json"), ("d", "date=2026-11-25/d.json")):
        trial.write(name, {"topic": topic, **own}, "broken", {"topic": topic, **own})
    trial.write("orders/2026/2.json", {"topic": "o", **own})
    trial.write("date=2026-11-26/d.json", {"topic": "d", **own})
    trial.write("customers/2026/2.json", {"topic": "c", **own})
    trial.write("k+0+2.json", {"topic": "k", **own})
    trial.write("l+0+2.json", {"topic": "l", **own})
    with pytest.raises(LakeError, match="3 of the partitions or files"):
        trial.run()
    assert {topic: len(trial.held(topic)) for topic in "okdcl"} == {"o": 1, "k": 1, "d": 1, "c": 1, "l": 1}


@pytest.mark.parametrize("how", ["deleted", "renamed"])
def test_a_file_that_is_gone_before_its_end_is_told(trial: Trial, how: str) -> None:
    trial.write("a.json", '{"id":1}\n{"id":', end="")
    trial.run()
    trial.write("a.json", '2}\n{"id":3}')
    (trial.events / "a.json").rename(trial.events / "a.json.1")
    if how == "deleted":
        (trial.events / "a.json.1").unlink()
    trial.write("b.json", {"id": 10})
    for _ in range(2):
        with pytest.raises(
            LakeError, match=r"a\.json line 2: the file is gone.* everything after byte 9 is missing in the lake"
        ):
            trial.run()
        assert ids(trial) == [1, 10]
    if how == "renamed":
        (trial.events / "a.json.1").rename(trial.events / "a.json")
        trial.run()
        assert ids(trial) == [1, 10, 2, 3]
        return
    trial.properties["errors.tolerance"] = "all"
    trial.configure()
    trial.run()
    [rejected] = trial.held("shop.rejected")
    assert rejected["value"]["place"] == "a.json line 2"
    trial.run()
    assert len(trial.held("shop.rejected")) == 1


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_line(trial: Trial) -> None:
    (trial.events / "a.json").write_bytes(b'\xef\xbb\xbf{"id": 1}\r\n{"id": 2}\r\n')
    (trial.events / "b.json").write_bytes(b'\xef\xbb\xbf{"id": 3}')
    trial.run()
    assert ids(trial) == [1, 2, 3]


def test_lines_are_numbered_as_they_stand(trial: Trial) -> None:
    trial.write("a.json", {"id": 1}, {"id": 2}, end="")
    trial.run()
    trial.write("a.json", "", "", {"id": 4}, "broken")
    with pytest.raises(LakeError, match=r"a\.json line 5: "):
        trial.run()


@pytest.mark.parametrize("seed", range(int(os.environ.get("CDC_LAW_EXAMPLES", "2"))))
def test_logs_are_rotated_while_runs_die(trial: Trial, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - moments and places
    written = rolled = 0
    for _ in range(12):
        if chance.random() < 0.5 and (trial.events / "shop.json").exists():
            rolled += 1
            (trial.events / "shop.json").rename(trial.events / f"shop-{rolled:03}.json")
            if chance.random() < 0.5:
                written += 1
                trial.write(f"shop-{rolled:03}.json", row(written))
        for _ in range(chance.randrange(3)):
            written += 1
            trial.write("shop.json", row(written))
        with suppress(PowerCutError), cut_at(chance.choice(STEPS), chance.randrange(3)):
            trial.run()
    trial.run()
    assert ids(trial) == list(range(1, written + 1))
