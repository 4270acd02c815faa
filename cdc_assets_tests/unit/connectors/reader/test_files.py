"""Each line of a folder that grows arrives once, whatever happens to runs and files."""

import gzip
import json
import os
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cli.engine import capture_by_engine
from cdc_assets.cli.engine_doctor import engine_checks
from cdc_assets.errors import ConfigurationError, LakeError
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.connectors.reader.trial import STEPS, Trial

SEEDS = int(os.environ.get("CDC_LAW_EXAMPLES", "2"))


def event(number: int, **more: Any) -> dict[str, Any]:
    return {
        "topic": f"shop.t{number % 2}",
        "key": {"id": number},
        "value": {"before": None, "after": {"id": number, **more}, "op": "c", "source": {"pos": number}},
        "headers": {"h": str(number)},
    }


def numbers(trial: Trial, *topics: str) -> list[int]:
    return [found["key"]["id"] for topic in topics or ("shop.t0", "shop.t1") for found in trial.held(topic)]


def test_the_command_exports_metrics(tmp_path: Path) -> None:
    trial, file = Trial(tmp_path), tmp_path / "shop.prom"
    trial.write("a.json", *map(event, range(10)))
    configuration = tmp_path / "capture.json"
    configuration.write_text(json.dumps({**trial.properties, "metrics.textfile": str(file)}))
    capture_by_engine(configuration, follow=False, idle=None)
    text = file.read_text()
    assert 'kind="batch",operation="create",table="t0"} 5.0' in text
    assert "cdc_assets_health" not in text, "the command has ended"


def test_doctor_asks_for_what_files_need_and_nothing_else(tmp_path: Path) -> None:
    trial, configuration = Trial(tmp_path), tmp_path / "capture.json"
    trial.write("a.json", *map(event, range(10)))
    trial.run()
    configuration.write_text(json.dumps(trial.properties))
    checks = engine_checks(configuration)
    assert all(check.ok for check in checks)
    assert {check.check for check in checks} == {"settings", "source", "lake", "topic"}


@pytest.mark.parametrize(
    ("change", "check", "blocking"),
    [
        ({"files.path": "/nowhere/at/all"}, "source", True),
        ({"errors.tolerance": "sometimes"}, "settings", True),
        ({"files.patern": "x"}, "settings", True),
        ({"key.converter": "org.apache.kafka.connect.storage.StringConverter"}, "settings", True),
        ({"schemas.file": "/nowhere.json"}, "settings", True),
        ({"files.pattern": "none"}, "source", True),
        (
            {"connector.class": "cdc_assets.KafkaEvents", "bootstrap.servers": "127.0.0.1:1", "topics": "t"},
            "source",
            True,
        ),
    ],
)
def test_doctor_finds_what_a_reader_could_not_work_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], check: str, blocking: bool
) -> None:
    monkeypatch.setattr("cdc_assets.adapters.kafka.unread._REQUEST_TIMEOUT_S", 0.5)
    trial, configuration = Trial(tmp_path), tmp_path / "capture.json"
    trial.write("a.json", *map(event, range(10)))
    trial.run()
    own = trial.properties | change
    if "topics" in change:
        own = {name: text for name, text in own.items() if not name.startswith("files.")}
    configuration.write_text(json.dumps(own))
    [found] = [found for found in engine_checks(configuration) if not found.ok]
    assert (found.check, found.blocking) == (check, blocking)
    assert found.remedy


def test_doctor_does_not_refuse_a_capture_for_want_of_a_driver(tmp_path: Path) -> None:
    configuration = tmp_path / "capture.json"
    own = {"connector.class": "io.debezium.connector.other.OtherConnector", "topic.prefix": "shop"}
    configuration.write_text(json.dumps(own | {"lake.path": str(tmp_path / "lake")}))
    [driver] = [check for check in engine_checks(configuration) if check.check == "driver"]
    assert (driver.ok, driver.blocking) == (False, False)


@pytest.mark.combinations
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_run_may_die_at_any_step(tmp_path: Path, step: str, times: int) -> None:
    trial = Trial(tmp_path)
    trial.write("a.json", *map(event, range(10)))
    with suppress(PowerCutError), cut_at(step, times):
        trial.run()
        trial.write("a.json", *map(event, range(10, 20)))
        trial.run()
    trial.write("b.jsonl.gz", *map(event, range(30, 40)))
    trial.run()
    found = numbers(trial)
    assert len(found) == len(set(found))
    assert set(found) >= {*range(10), *range(30, 40)}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_files_grow_at_any_byte_while_runs_die(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - moments and places
    trial = Trial(tmp_path)
    names = ["a.json", "b.jsonl.gz", "c/d.ndjson"]
    (trial.events / "c").mkdir()
    whole = {}
    for place, name in enumerate(names):
        text = "".join(json.dumps(event(number)) + "\n" for number in range(place * 100, place * 100 + 60)).encode()
        whole[name] = gzip.compress(text) if name.endswith(".gz") else text
    written = dict.fromkeys(names, 0)
    for _ in range(8):
        for name in names:
            written[name] = min(len(whole[name]), written[name] + chance.randrange(len(whole[name]) // 3))
            (trial.events / name).write_bytes(whole[name][: written[name]])
        with suppress(PowerCutError), cut_at(chance.choice(STEPS), chance.randrange(3)):
            trial.run()
    for name in names:
        (trial.events / name).write_bytes(whole[name])
    trial.run()
    expected = sorted(number for place in range(3) for number in range(place * 100, place * 100 + 60))
    assert sorted(numbers(trial)) == expected


def test_a_file_is_read_once_and_on_where_it_ended(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.write("a.json", event(0), event(2), end="")  # its last line has no end yet
    assert sum(trial.run().rows.values()) == 2
    assert sum(trial.run().rows.values()) == 0
    trial.write("a.json", "", event(4))
    assert sum(trial.run().rows.values()) == 1
    assert numbers(trial, "shop.t0") == [0, 2, 4]


def test_another_file_of_the_same_name_is_refused_and_others_are_read(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.write("a.json", event(0), event(2))
    trial.run()
    (trial.events / "a.json").write_text(json.dumps(event(8)) + "\n" + json.dumps(event(10)) + "\n" * 3)
    trial.write("b/b.json", event(4))
    with pytest.raises(LakeError, match=r"a\.json.*it is not the file of which 2 lines were read") as refused:
        trial.run()
    assert "files.path" not in str(refused.value), "no setting is wrong"
    (trial.events / "a.json").write_text("")
    with pytest.raises(LakeError, match=r"a\.json"):
        trial.run()
    assert numbers(trial, "shop.t0") == [0, 2, 4]


BROKEN = {
    '{"key": {"id": 1}, "value": ': "no JSON",
    '{"key": {"id": 1}, "value": {"op": "c"}} rest': "text follows",
    "[1]": "no JSON object",
    "{}": "an empty object",
    '{"key": {"id": 1}, "value": {"op": "c"}}': "names no topic",
    '{"topic": "../up", "key": {"id": 1}, "value": {"op": "c"}}': "no name of a topic",
    '{"topic": "shop.__batches", "key": {"id": 1}, "value": {"op": "c"}}': "no name of a topic",
    '{"topic": "t", "value": {"schema": {"type": "odd"}, "payload": {}}}': "odd is no type of Connect",
    '{"topic": "t", "value": {"schema": {"type": "int8"}, "payload": 300}}': "300; expected int8",
    '{"topic": "t", "value": {"schema": {"type": "struct", "fields": [{"field": "b", "type": "int8", "optional": true}]}, "payload": {"a": 1}}}': (
        "a is not a field of its schema"
    ),
    '{"topic": "t", "value": {"schema": {"type": "struct", "fields": []}, "payload": {}}}': "a structure without fields",
    '{"topic": "t", "value": {"a": 123456789012345678901234567890}}': "neither int64 nor double",
    '{"topic": "t", "value": {"a": "\udcff"}}': "can't decode byte",
}


def test_records_that_cannot_be_read_stop_their_files_alone(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    for number, line in enumerate(BROKEN):
        trial.write(f"{number:02}x/a.json", event(4 * number), line, event(4 * number + 2))
    good = event(100)
    trial.write("b/b.json", good)
    before = [4 * number for number in range(len(BROKEN))]
    for _ in range(2):
        with pytest.raises(LakeError) as told:
            trial.run()
        for number, reason in enumerate(BROKEN.values()):
            assert re.search(rf"{number:02}x/a\.json line 2: [^;]*{reason}", str(told.value)), reason
        assert numbers(trial, "shop.t0") == [*before, 100]
    for file in sorted(trial.events.glob("*/a.json")):
        first, broken, last = file.read_bytes().split(b"\n")[:3]
        mended = b" " * len(broken) if file.parent.name > "00x" else json.dumps(event(200)).encode()
        file.write_bytes(b"\n".join([first, mended, last, b""]))
    trial.run()
    assert numbers(trial, "shop.t0") == [*before, 100, 200, *(number + 2 for number in before)]


def test_records_that_cannot_be_read_can_be_put_aside(tmp_path: Path) -> None:
    trial = Trial(tmp_path, errors__tolerance="all")
    trial.write("a.json", *(part for number, line in enumerate(BROKEN) for part in (event(2 * number), line)))
    trial.run()
    trial.run()
    assert numbers(trial, "shop.t0") == [2 * number for number in range(len(BROKEN))]
    found = [rejected["value"] for rejected in trial.held("shop.rejected")]
    assert [value["place"] for value in found] == [f"a.json line {2 * n + 2}" for n in range(len(BROKEN))]
    for value, reason in zip(found, BROKEN.values(), strict=True):
        assert reason in value["reason"]


def test_forms_of_lines(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    key, value = {"id": 1}, {"op": "c", "after": {"id": 1}}
    schema = {"type": "struct", "name": "shop.dbo.t.Envelope", "fields": [{"type": "string", "field": "op"}]}
    own = {"topic": "kcat", "partition": 0, "offset": 7, "key": json.dumps(key), "payload": json.dumps(value)}
    trial.write("a.json", own | {"headers": ["h", "1"]})
    trial.write("kept+0+0000000012.json", {"key": key, "value": value}, value)
    trial.write("schema.json", {"schema": schema, "payload": {"op": "d"}})
    trial.write("order.json", {"topic": "order", "value": {"payload": {"op": "d"}, "schema": schema}, "key": None})
    trial.run()
    shown = {topic: trial.held(topic, headers=True) for topic in ("kcat", "kept", "shop.dbo.t", "order")}
    parts = {topic: [(e["key"], e["value"], e["headers"]) for e in events] for topic, events in shown.items()}
    full = {"op": "c", "before": {"id": None}, "after": {"id": 1}}
    assert parts["kcat"][0][0] == key
    assert parts["kcat"][0][1]["after"] == {"id": 1}
    assert parts["kcat"][0][2] == {"h": "1"}
    assert [part[0] for part in parts["kept"]] == [key, None]
    assert [part[1]["after"] for part in parts["kept"]] == [full["after"]] * 2
    assert parts["shop.dbo.t"] == [(None, {"op": "d"}, {})]
    assert parts["order"] == [(None, {"op": "d"}, {})]


def test_what_tail_prints_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first, second = Trial(tmp_path / "one"), Trial(tmp_path / "two", files__topic="shop.t0")
    first.write("a.json", *(event(number, name='ä\n"') for number in (0, 2, 4)))
    first.run()
    second.write("b.json", *first.held("shop.t0", schemas=True, headers=False))
    second.run()
    shown = [trial.held("shop.t0", schemas=True) for trial in (first, second)]
    assert [{**e, "position": ""} for e in shown[0]] == [{**e, "position": ""} for e in shown[1]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("files.path", ""),
        ("errors.tolerance", "some"),
        ("files.pattern", "("),
        ("file.path", "x"),
        ("key.converter", "X"),
    ],
)
def test_wrong_properties_are_told(tmp_path: Path, name: str, text: str) -> None:
    trial = Trial(tmp_path, **{name.replace(".", "__"): text})
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
        trial.run()


def test_files_are_chosen_by_javas_expressions(tmp_path: Path) -> None:
    trial = Trial(tmp_path, files__pattern=r"(?<name>[ab])\.json")
    for number, name in enumerate(("a.json", "c.json", "b.json")):
        trial.write(name, event(number))
    trial.run()
    assert numbers(trial) == [0, 2]


@pytest.mark.long
def test_an_expression_that_never_ends_is_told(tmp_path: Path) -> None:
    trial = Trial(tmp_path, files__pattern=r"(?:.|..)*(?=!)")
    trial.write("a" * 100, event(1))
    with pytest.raises(ConfigurationError, match=r"files\.pattern.*takes too long"):
        trial.run()
