"""Readers of others fold our topics into the server's tables: Spark's Kafka source, and Flink's `debezium-json`.

Each runs in a process of its own and reads committed records alone; among ours are those of a publisher that was killed.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.maven import CACHE, Need, fetched
from cdc_assets_tests.kafka.publishing import Publishing
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
SPARK = "4.2.0"
"""Of the source's jars: the newest that there is for the PySpark that is installed."""
FLINK, FLINK_SOURCE = "2.2.1", "5.0.0-2.2"
READERS = Path(__file__).parent / "readers"
COLUMNS = "id", "name", "amount", "at", "flag", "big", "ratio"
ROW = "({0}, N'{0} Zoë 😀 \"''', {0}.25, '2024-02-29T12:00:00.{0:03d}', {1}, {0} * 10000000000, {0} / 8e0)"


class Case:
    """A table with columns of several types, published in small transactions into three partitions."""

    def __init__(self, server: StandIn, folder: Path, broker: Broker, prefix: str) -> None:
        options = {
            "topic.creation.default.partitions": "3",
            "topic.creation.default.replication.factor": "1",
            "decimal.handling.mode": "string",
            "time.precision.mode": "connect",
            "kafka.transaction.rows": "7",
        }
        self.publishing = Publishing(server, folder, broker, prefix, **options)
        self.topic = f"{prefix}.{DATABASE}.dbo.u"
        types = "int NOT NULL PRIMARY KEY", "nvarchar(40)", "decimal(10, 2)", "datetime2(3)", "bit", "bigint", "float"
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(COLUMNS, types, strict=True))
        self.publishing.execute(f"CREATE TABLE dbo.u ({columns})")
        self.publishing.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'u', @role_name = NULL"
        )
        self.insert(*range(40))
        self.publishing.capture("snapshot")
        self.publishing.publish()

    def insert(self, *numbers: int) -> None:
        """One transaction for all."""
        rows = ", ".join(ROW.format(number, number % 2) for number in numbers)
        self.publishing.execute(f"INSERT INTO dbo.u VALUES {rows}")

    def change(self) -> None:
        """Updates, deletes, changed keys, rows that come again; a publisher is killed within."""
        self.publishing.execute("UPDATE dbo.u SET name = NULL, amount = amount * -1, flag = NULL WHERE id % 3 = 0")
        self.publishing.execute("DELETE FROM dbo.u WHERE id % 5 = 0")
        self.publishing.execute("UPDATE dbo.u SET id = id + 1000 WHERE id % 7 = 0")
        self.insert(5, 10, 500)
        self.publishing.execute("UPDATE dbo.u SET name = N'', at = NULL, big = -1, ratio = -0.5 WHERE id = 10")
        self.publishing.capture()
        killed = self.publishing.command(crash="publish-sent:2")
        assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
        self.publishing.publish()

    def state(self) -> list[dict[str, Any]]:
        """The server's rows, as the events show their values."""
        at = "CAST(DATEDIFF(second, '1970-01-01', at) AS bigint) * 1000 + DATEPART(millisecond, at)"
        shown = ", ".join({"amount": "CAST(amount AS varchar(20))", "at": at}.get(name, name) for name in COLUMNS)
        rows = self.publishing.server.execute(f"SELECT {shown} FROM dbo.u ORDER BY id", database=DATABASE)
        return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def test_sparks_kafka_source_reaches_the_servers_state(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    """A stream with a checkpoint, run twice; the structure is that which the records carry."""
    jars = needed(f"spark-kafka-{SPARK}", Need("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK))
    case = Case(server, tmp_path, broker, "spark")
    own = [str(jar) for jar in jars.glob("*.jar") if jar.name.startswith(("spark-", "kafka-", "commons-"))]
    arguments = (broker.servers, case.topic, str(tmp_path / "spark"), ",".join(own))
    for _ in range(2):
        assert read(sys.executable, "spark.py", *arguments) == case.state()
        case.change()
    assert read(sys.executable, "spark.py", *arguments) == case.state()
    assert len(case.state()) > 30


def test_flinks_debezium_json_reaches_the_servers_state(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    python = flink()
    jars = needed(f"flink-kafka-{FLINK_SOURCE}", Need("org.apache.flink", "flink-sql-connector-kafka", FLINK_SOURCE))
    case = Case(server, tmp_path, broker, "flink")
    case.change()
    [jar] = jars.glob("flink-sql-connector-kafka-*.jar")
    assert read(python, "flink.py", broker.servers, case.topic, str(jar)) == case.state()


def read(python: str | Path, script: str, *arguments: str) -> Any:
    """The rows that a reader's program prints as JSON, in a line among its own talk."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    command = [str(python), str(READERS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("[{")]
    return json.loads(line)


def needed(folder: str, *needs: Need) -> Path:
    """Jars, without which the test is skipped."""
    try:
        return fetched(folder, *needs)
    except AssertionError as error:
        pytest.skip(f"no jars from Maven Central for {needs[0].name} {needs[0].version}: {str(error)[-200:]}")


def flink() -> Path:
    """The interpreter of an environment with PyFlink, made once; without it the test is skipped."""
    place = CACHE / f"flink-{FLINK}"
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        install = [str(python), "-m", "pip", "install", "-q", f"apache-flink=={FLINK}", "setuptools<81"]
        done = subprocess.run(install, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            pytest.skip(f"PyFlink {FLINK} cannot be installed: {done.stderr[-300:]}")
        (place / "complete").touch()
    return python
