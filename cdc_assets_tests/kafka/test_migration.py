"""The recipe of docs/kafka.md: the topics of a connector in a real Connect worker are continued by ours."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc_assets.cli.main import app
from cdc_assets.config.settings.kafka import JSON
from cdc_assets.standin.control import StandIn
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.connect import Worker, source, wait_until
from cdc_assets_tests.kafka.publishing import count, read_committed
from cdc_assets_tests.unit.streaming.child import DATABASE

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
TOPIC = f"moved.{DATABASE}.dbo.t"


def test_topics_of_a_connector_are_continued(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    """The same keys stay in their partitions, each event is there once, and records have the same form."""
    execute(server, "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, note nvarchar(40))")
    execute(server, "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL")
    execute(server, "INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b'), (3, N'c')")
    properties = source(
        tmp_path,
        **{
            "database.hostname": server.host,
            "database.port": str(server.port),
            "database.user": server.user,
            "database.password": server.password,
            "database.names": DATABASE,
            "topic.prefix": "moved",
            "table.include.list": r"dbo\.t",
            "key.converter": JSON,
            "value.converter": JSON,
            "topic.creation.default.partitions": "3",
            "topic.creation.default.replication.factor": "1",
        },
    )
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


def execute(server: StandIn, statement: str) -> None:
    """Run a statement, and let the capture job see it."""
    server.execute(statement, database=DATABASE)
    server.agent.drain()
