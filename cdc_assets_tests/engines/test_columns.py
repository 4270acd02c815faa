"""Values of every kind, through the engine's columns, are what Connect's own JSON converter says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.connectors.engine.columns import fields_of, read_columns
from cdc_assets.connectors.engine.schemas import topic_schema
from cdc_assets.envelope.json import to_json

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]


def test_random_values_of_every_kind(tmp_path: Path) -> None:
    chunks = int(os.environ.get("CDC_ENGINE_CHUNKS", "20"))
    seed = os.environ.get("CDC_ENGINE_SEED", "1")
    command = [sys.executable, "-m", "cdc_assets_tests.engines.kinds", str(tmp_path), seed, str(chunks)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    described: dict[int, tuple[Any, Any]] = {}
    for chunk in range(chunks):
        header = json.loads((tmp_path / f"{chunk}.json").read_text())
        body = (tmp_path / f"{chunk}.bin").read_bytes()
        found: dict[int, list[Any]] = {}
        for group in header["groups"]:
            if "key" in group:
                described[group["id"]] = group["key"], group["value"]
            part, body = body[: group["bytes"]], body[group["bytes"] :]
            table = read_columns(fields_of(*described[group["id"]]), part)
            for column in table.columns:
                column.validate(full=True)
            found |= dict(
                zip(table["n"].to_pylist(), _events(table, *described[group["id"]], group["topic"]), strict=True)
            )
        assert not body
        expected = json.loads((tmp_path / f"{chunk}.events").read_text())
        assert [found[number] for number in range(len(found))] == expected


def _events(table: pa.Table, key: Any, value: Any, topic: str) -> list[list[Any]]:
    """As the lake prints them."""
    columns = {name: table[name].combine_chunks() for name in ("key", "value", "headers")}
    columns["position"] = pa.array(["0"] * table.num_rows)
    keys, values, _ = to_json(topic_schema(key, value), pa.record_batch(columns), schemas=False)
    texts = [[text and json.loads(text) for text in part.to_pylist()] for part in (keys, values)]
    headers = [[list(pair) for pair in row] for row in table["headers"].to_pylist()]
    return [[topic, *event] for event in zip(*texts, headers, strict=True)]
