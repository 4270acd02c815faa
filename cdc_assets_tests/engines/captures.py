"""Runs of this project and of the connector by itself beside it, and what each has sent."""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from cdc_assets.envelope.json import to_json

HEARTBEATS = "__debezium-heartbeat.shop"


def ours(folder: Path, properties: dict[str, str], *, idle: float = 5, **environment: str) -> subprocess.Popen[bytes]:
    configuration = folder / "capture.json"
    configuration.write_text(json.dumps(properties))
    command = [sys.executable, "-m", "cdc_assets.cli.main", "capture", "-c", str(configuration), "--idle", str(idle)]
    with (folder / "ours.log").open("ab") as log:
        return subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log)


@contextmanager
def connector_alone(folder: Path, properties: dict[str, str]) -> Iterator[Path]:
    """The same connector in the engine by itself; gives the file with its events."""
    folder.mkdir()
    given, out, stop = folder / "properties.json", folder / "events.jsonl", folder / "stop"
    own = {
        "name": "shop",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets.dat"),
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / "history.dat"),
        **{f"{part}converter.schemas.enable": "false" for part in ("", "key.", "value.")},
    }
    given.write_text(json.dumps(properties | own))
    out.touch()
    command = [sys.executable, "-m", "cdc_assets_tests.conformance.engine", str(given), str(out), str(stop)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield out
    finally:
        stop.touch()
        process.wait(60)


def quiet(file: Path, seconds: float, least: int) -> None:
    """Wait until a file has so many lines and does not grow any more, but for heartbeats."""
    deadline, last, since = time.monotonic() + 180, -1, time.monotonic()
    while time.monotonic() < deadline:
        count = sum(HEARTBEATS.encode() not in line for line in file.read_bytes().splitlines())
        if count != last:
            last, since = count, time.monotonic()
        if count >= least and time.monotonic() - since > seconds:
            return
        time.sleep(0.2)
    raise AssertionError(f"{file} has {last} lines")


def topics(lake: Path) -> dict[str, list[dict[str, Any]]]:
    """Events by topic in their order, rendered from the lake."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for folder in sorted(lake.iterdir()):
        if folder.name.startswith("shop.__"):
            continue
        table = DeltaTable(str(folder)).to_pyarrow_table().sort_by("position").combine_chunks()
        for batch in table.to_batches():
            columns = [part.to_pylist() for part in to_json(table.schema, batch, schemas=False)]
            for position, key, value, headers in zip(batch["position"].to_pylist(), *columns, strict=True):
                event = {"key": key and json.loads(key), "value": value and json.loads(value)}
                found[folder.name.split("@")[0]].append(event | {"headers": json.loads(headers), "position": position})
    return {topic: sorted(events, key=itemgetter("position")) for topic, events in found.items()}


def comparable(event: dict[str, Any]) -> dict[str, Any]:
    """Without times of processing, and without what a snapshot says of its own moment; columns that are no more are null."""
    value = event["value"] and {name: part for name, part in event["value"].items() if not name.startswith("ts_")}
    for collection in (value or {}).get("data_collections") or ():  # of messages: the name of a Java object
        collection["data_collection"] = collection["data_collection"].partition("@")[0]
    if value and "source" in value:
        snapshot = value["source"]["snapshot"] not in (None, "false")
        own = ("ts_", "pos", "lsn", "txId", "sequence", "xmin") if snapshot else ("ts_",)
        value["source"] = {name: part for name, part in value["source"].items() if not name.startswith(own)}
    headers = {name: part for name, part in event["headers"].items() if "runId" not in name}
    return {"key": event["key"], "value": without_nulls(value), "headers": headers}


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(part) for name, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def sent(alone: Path) -> dict[str, list[dict[str, Any]]]:
    """The connector's own events by topic."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in alone.read_text().splitlines():
        event = json.loads(line)
        if "stopped" not in event:
            found[event.pop("topic")].append(event)
    return dict(found)
