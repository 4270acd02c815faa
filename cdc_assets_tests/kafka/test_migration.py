"""The recipe of docs/kafka.md: the topics of a connector in a real Connect worker are continued by ours."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from typer.testing import CliRunner

from cdc_assets.cli.main import app
from cdc_assets.config.settings.kafka import JSON
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.connect import Worker, of_server, source, wait_until
from cdc_assets_tests.kafka.publishing import count, read_committed
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
TOPIC = f"moved.{DATABASE}.dbo.t"


@pytest.fixture(autouse=True)
def _rows(server: StandIn) -> None:
    """A captured table with three rows."""
    execute(server, "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, note nvarchar(40))")
    execute(server, "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL")
    execute(server, "INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b'), (3, N'c')")


def of_connector(server: StandIn, folder: Path, prefix: str) -> dict[str, str]:
    """Its properties; topics of three partitions."""
    options = {f"{side}.converter": JSON for side in ("key", "value")} | {
        "table.include.list": r"dbo\.t",
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
    }
    return source(folder, **of_server(server, DATABASE, prefix), **options)


def test_topics_of_a_connector_are_continued(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    """The same keys stay in their partitions, each event is there once, and records have the same form."""
    properties = of_connector(server, tmp_path, "moved")
    connect = tmp_path / "connect"
    with Worker(connect, broker.servers, {"moved": properties}) as worker:
        wait_until(lambda: count(broker, TOPIC) == 3, worker, "the snapshot")
        execute(server, "UPDATE dbo.t SET note = N'theirs'")
        wait_until(lambda: count(broker, TOPIC) == 6, worker, "the changes")
    execute(server, "UPDATE dbo.t SET note = N'between'")
    execute(server, "DELETE FROM dbo.t WHERE id = 2")
    file = tmp_path / "moved.json"
    own = {"lake.path": str(tmp_path / "lake"), "bootstrap.servers": broker.servers, "stream.idle.timeout.ms": "1"}
    own["offset.storage.file.filename"] = str(connect / "offsets.dat")
    file.write_text(json.dumps(properties | own))
    for command in (["adopt", "--yes"], ["capture", "--local"], ["publish"]):
        done = CliRunner().invoke(app, [*command, "--config", str(file)], env={"COLUMNS": "220"})
        assert done.exit_code == 0, done.output
    places: dict[bytes, set[int]] = {}
    notes: dict[int, list[str]] = {}
    schemas = set()
    for sent in read_committed(broker, TOPIC):
        places.setdefault(sent.key, set()).add(sent.partition)
        document = json.loads(sent.value) if sent.value is not None else {"payload": None}
        after = (document["payload"] or {}).get("after") or {}
        notes.setdefault(json.loads(sent.key)["payload"]["id"], []).append(after.get("note", "gone"))
        schemas.add(json.dumps(document.get("schema")))
    assert all(len(partitions) == 1 for partitions in places.values())
    assert notes[1] == ["a", "theirs", "between"]
    assert notes[2] == ["b", "theirs", "between", "gone", "gone"]
    assert notes[3] == ["c", "theirs", "between"]
    assert len(schemas) == 2, "one schema, and none of the tombstone"


def test_each_step_of_the_recipe_with_a_distributed_worker(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    """Offsets and schema history in Kafka; a consumer that reads throughout; and the way back."""
    topic = TOPIC.replace("moved", "recipe")
    properties = of_connector(server, tmp_path, "recipe") | {
        "schema.history.internal": "io.debezium.storage.kafka.history.KafkaSchemaHistory",
        "schema.history.internal.kafka.topic": "recipe-history",
        "schema.history.internal.kafka.bootstrap.servers": broker.servers,
    }
    file, offsets, history = (tmp_path / name for name in ("recipe.json", "offsets.json", "history.txt"))
    options = {"bootstrap.servers": broker.servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = Consumer(options | {"isolation.level": "read_committed", "log_level": 0})
    with Worker(tmp_path / "connect", broker.servers, {"recipe": properties}, distributed=True) as worker:
        wait_until(lambda: count(broker, topic) == 3, worker, "the snapshot")
        consumer.subscribe([topic])
        execute(server, "UPDATE dbo.t SET note = N'theirs'")
        assert read(consumer, 6) == {1: ["a", "theirs"], 2: ["b", "theirs"], 3: ["c", "theirs"]}
        connector = f"{worker.address}/connectors/recipe"
        curl("-X", "PUT", f"{connector}/stop")
        wait_until(lambda: '"STOPPED"' in curl(f"{connector}/status"), worker, "the connector's end")
        execute(server, "UPDATE dbo.t SET note = N'ours' WHERE id < 3")
        execute(server, "DELETE FROM dbo.t WHERE id = 2")
        offsets.write_text(curl(f"{connector}/offsets"))
        changes = read_committed(broker, "recipe-history")
        history.write_text("".join(f"{one.value.decode()}\n" for one in changes))
        own = {"lake.path": str(tmp_path / "lake"), "bootstrap.servers": broker.servers, "stream.idle.timeout.ms": "1"}
        file.write_text(json.dumps(properties | own))
        given = ("--offsets", str(offsets), "--history", str(history))
        assert "continues" in command("adopt", file, *given)
        assert not (tmp_path / "lake").exists()
        command("adopt", file, *given, "--yes")
        command("capture", file, "--local")
        publisher = subprocess.Popen([*CDC, "publish", "--config", str(file), "--follow"])
        try:
            assert read(consumer, 4) == {1: ["ours"], 2: ["ours", "gone", "gone"]}
        finally:
            publisher.terminate()
            assert publisher.wait(60) == 130
        assert "published" in command("status", file).lower()
        curl("-X", "PUT", f"{connector}/resume")
        assert read(consumer, 4) == {1: ["ours"], 2: ["ours", "gone", "gone"]}, "the way back repeats"
        curl("-X", "PUT", f"{connector}/stop")
        curl("-X", "DELETE", connector)
    consumer.close()


CDC = (sys.executable, "-m", "cdc_assets.cli.main")


def command(name: str, file: Path, *arguments: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        [*CDC, name, "--config", str(file), *arguments], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def curl(*arguments: str) -> str:
    """What a worker answers."""
    return subprocess.run(["curl", "-sf", *arguments], capture_output=True, text=True, timeout=60, check=True).stdout


def read(consumer: Consumer, number: int) -> dict[int, list[str]]:
    """Notes of the next records by id."""
    found: dict[int, list[str]] = {}
    for _ in range(number):
        record = consumer.poll(120)
        assert record is not None, f"no more than {found}"
        assert record.error() is None
        after = json.loads(record.value())["payload"]["after"] if record.value() is not None else None
        found.setdefault(json.loads(record.key())["payload"]["id"], []).append(after["note"] if after else "gone")
    return found


def execute(server: StandIn, statement: str) -> None:
    """Run a statement, and let the capture job see it."""
    server.execute(statement, database=DATABASE)
    server.agent.drain()
