"""What Oracle's connector makes of redo SQL comes out of the lake as its JSON, by the engine's way and by files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.connectors.engine.columns import fields_of, read_columns
from cdc_assets.connectors.engine.feed import Chunk, Lines, Offsets
from cdc_assets.connectors.engine.run import EngineRun
from cdc_assets_tests.unit.connectors.engine.feeds import READY
from cdc_assets_tests.unit.connectors.reader.trial import Trial

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

TOPIC = "server1.DEBEZIUM.CUSTOMERS"


class OneChunk:
    """A feed of what the engine's process would send."""

    started, snapshot = True, False

    def __init__(self, folder: Path) -> None:
        self._folder, self._done = folder, False

    def __call__(self, offsets: Offsets, history: Any) -> "OneChunk":
        return self

    def next(self, timeout_s: float) -> Chunk | None:
        if self._done:
            return None
        self._done = True
        header, body = json.loads((self._folder / "chunk.json").read_text()), (self._folder / "chunk.bin").read_bytes()
        lines, start = [], 0
        for group in header["groups"]:
            data, start = body[start : start + group["bytes"]], start + group["bytes"]
            table = read_columns(fields_of(group["key"], group["value"]), data)
            parts = group["topic"], group["id"], group["key"], group["value"], group["rows"], 0, b"", table
            lines.append(Lines(*parts))
        return Chunk(1, lines, header["rows"], [tuple(pair) for pair in header["offsets"]])

    def committed(self, number: int) -> None:
        """Nothing waits for it."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("oracle") / "made"
    command = [sys.executable, "-m", "cdc_assets_tests.engines.oracle", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("name", ["plain", "large-objects", "connect"])
@pytest.mark.parametrize("way", ["engine", "files"])
def test_events_of_the_connectors_own_classes(tmp_path: Path, made: Path, name: str, way: str) -> None:
    events = [json.loads(line) for line in (made / name / "events.json").read_text().splitlines()]
    trial = Trial(tmp_path)
    if way == "engine":
        EngineRun(trial.config, trial.tables(), OneChunk(made / name), habits=READY).run()
    else:
        trial.write("a.json", *events)
        trial.run()
    found = trial.held(TOPIC, schemas=True, headers=True)
    parts = ("key", "value", "headers")
    assert [[e[part] for part in parts] for e in found] == [[without_doc(e[part]) for part in parts] for e in events]
    operations = [event["value"] and event["value"]["payload"]["op"] for event in found]
    assert operations == (["c", "u", "d", "t"] if name == "large-objects" else ["c", "u", "d", "c", "d", "t"])
    source = found[0]["value"]["payload"]["source"]
    assert (source["txId"], source["commit_scn"], source["user_name"]) == ("06001c0027030000", "2122199", "DEBEZIUM")
    assert (source["scn"], source["rs_id"], source["ssn"], source["redo_thread"]) == (
        "2122185",
        "001234.00012345.0124",
        0,
        1,
    )


def without_doc(value: Any) -> Any:
    """The lake does not keep the documentation of a schema."""
    if isinstance(value, dict):
        return {name: without_doc(inner) for name, inner in value.items() if name != "doc"}
    return [without_doc(inner) for inner in value] if isinstance(value, list) else value
