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
from cdc_assets_tests.engines.servers import Server
from cdc_assets_tests.patience import Patience

HEARTBEATS = "__debezium-heartbeat.shop"


def ours(
    folder: Path, properties: dict[str, str], *, idle: float | None = 5, **environment: str
) -> subprocess.Popen[bytes]:
    """A run that ends after so long in quiet, or never (None)."""
    configuration = folder / "capture.json"
    configuration.write_text(json.dumps(properties))
    ending = ["--follow"] if idle is None else ["--idle", str(idle)]
    command = [sys.executable, "-m", "cdc_assets.cli.main", "capture", "-c", str(configuration), *ending]
    with (folder / "ours.log").open("ab") as log:
        return subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log)


def properties_of(server: Server, number: int, **more: str) -> dict[str, str]:
    """Of one of several captures of a server."""
    own = {"database.server.id": str(5400 + number), "slot.name": f"slot{number}", "publication.name": f"pub{number}"}
    return (
        server.properties() | {"topic.prefix": "shop"} | own | {name.replace("__", "."): v for name, v in more.items()}
    )


def captured(folder: Path, properties: dict[str, str], *, idle: float = 4, **environment: str) -> int:
    """Exit status of one run into `lake`."""
    lake = {"lake.path": str(folder / "lake"), "engine.batch.ms": "300", "engine.heap": "512m"}
    return ours(folder, lake | properties, idle=idle, **environment).wait(300)


def log_of(folder: Path) -> str:
    return " ".join((folder / "ours.log").read_text().split())


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
    patience, last, since = Patience(180), -1, time.monotonic()
    while patience:
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
        if (
            "ddl" in value or value.get("op") == "t"
        ):  # a statement has no row: it is that of whatever was read before it
            own = (*own, "row")
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
