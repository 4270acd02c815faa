"""Avro with a real registry that is killed, comes back, and refuses a schema."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.config.settings.kafka import AVRO
from cdc_assets.connectors.reader.avro import AvroParts
from cdc_assets_tests.kafka.apicurio import Apicurio
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import Publishing
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "int"}]}


def test_a_registry_that_is_killed_delays_and_one_that_refuses_stops_a_topic_alone(
    server: StandIn, tmp_path: Path, broker: Broker
) -> None:
    with Apicurio(tmp_path) as registry:
        sides = {f"{side}.converter": AVRO for side in ("key", "value")}
        urls = {f"{side}.converter.schema.registry.url": registry.address for side in ("key", "value")}
        case = Publishing(server, tmp_path, broker, "registered", **sides, **urls, **{"errors.max.retries": "-1"})
        for table in ("u", "v"):
            case.execute(f"CREATE TABLE dbo.{table} (id int NOT NULL PRIMARY KEY, note nvarchar(9))")
            names = f"@source_schema = N'dbo', @source_name = N'{table}'"
            case.execute(f"EXEC sys.sp_cdc_enable_table {names}, @role_name = NULL")
        case.insert(1)
        case.capture("snapshot")
        with case.running() as publisher:
            wait_for(lambda: notes(case, registry) == ["note 1"])
            registry.kill()
            case.insert(2)
            case.capture()
            wait_for(lambda: len(case.sent()) == 2)  # schemas that are known need no registry
            case.execute("INSERT INTO dbo.u VALUES (1, N'u')")
            case.capture()
            time.sleep(3)
            assert publisher.poll() is None
            assert not case.sent(case.topic[:-1] + "u")
            registry.start()
            wait_for(lambda: notes(case, registry, "u") == ["u"])
        assert notes(case, registry) == ["note 1", "note 2"]
        refused = f"{case.topic[:-1]}v-value"
        assert registry.asked(f"/subjects/{refused}/versions", "POST", {"schema": json.dumps(OTHER)})
        assert registry.asked(f"/config/{refused}", "PUT", {"compatibility": "BACKWARD"})
        case.execute("INSERT INTO dbo.v VALUES (1, N'v')")
        case.insert(3)
        case.capture()
        done = case.command()
        assert done.returncode == 1
        assert refused in done.stderr
        assert notes(case, registry) == ["note 1", "note 2", "note 3"]
        assert registry.asked(f"/config/{refused}", "PUT", {"compatibility": "NONE"})
        case.publish()
        assert notes(case, registry, "v") == ["v"]


def notes(case: Publishing, registry: Apicurio, table: str = "t") -> list[Any]:
    """What a consumer with the registry reads."""
    parts = AvroParts(registry.address, "")
    values = [parts.part(one.value) for one in case.sent(f"{case.prefix}.{DATABASE}.dbo.{table}")]
    return [value.parsed["after"]["note"] for value in values if value is not None]


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it is so."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)
