"""A table that changes again and again, read by Spark: added columns, generations, and what was there before."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType

from cdc_assets import read
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.spark import SparkResource
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of, run
from cdc_assets_tests.unit.streaming.law import state_of
from mssql_standin.control import StandIn

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"),
]
TOPIC = f"shop.{DATABASE}.dbo.bills"


@dataclass
class Bills:
    """A captured table after each of its changes.

    Args:
        config: of the capture.
        lsns: up to which the topic was complete after each step.
        rows: of the table at these LSNs, by id.
    """

    config: CaptureConfig
    lsns: list[Lsn]
    rows: list[dict[int, dict[str, Any]]]


STEPS = [
    ["CREATE TABLE dbo.bills (id int NOT NULL PRIMARY KEY, amount int NULL, due datetime2(3) NOT NULL)",
     "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'bills', @role_name = NULL",
     "INSERT INTO dbo.bills VALUES (1, 10, '2026-01-01T00:00:01'), (2, 20, '2026-01-02T00:00:02')"],
    ["ALTER TABLE dbo.bills ADD note nvarchar(20) NULL",
     "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'bills', @role_name = NULL, "
     "@capture_instance = N'bills_2'",
     "INSERT INTO dbo.bills VALUES (3, 30, '2026-01-03T00:00:03', N'three')"],
    ["ALTER TABLE dbo.bills ALTER COLUMN amount bigint NULL",
     "UPDATE dbo.bills SET amount = 20000000000 WHERE id = 2"],
    ["ALTER TABLE dbo.bills ALTER COLUMN due datetime2(7) NULL",
     "INSERT INTO dbo.bills VALUES (4, 40, '2026-01-04T00:00:04.1234567', NULL), (5, 50, NULL, N'five')"],
    ["ALTER TABLE dbo.bills DROP COLUMN amount",
     "ALTER TABLE dbo.bills ADD amount nvarchar(20) NULL",
     "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'bills', @capture_instance = N'dbo_bills'",
     "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'bills', @role_name = NULL, "
     "@capture_instance = N'bills_3'",
     "UPDATE dbo.bills SET amount = N'forty' WHERE id = 4",
     "DELETE FROM dbo.bills WHERE id = 1"],
]  # fmt: skip
"""A column more, a wider type in place, the same type with another meaning, and another column of the same name."""


@pytest.fixture(scope="module")
def bills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bills]:
    folder = tmp_path_factory.mktemp("bills")
    with StandIn(databases=(DATABASE,)) as server:
        config = config_of(server.port, server.password, str(folder))
        found = Bills(config, [], [])
        for number, statements in enumerate(STEPS):
            for statement in statements:
                server.execute(statement, database=DATABASE)
            server.agent.drain()
            if not number:
                run(config, "snapshot")
            run(config, "stream")
            state = state_of(config).tables[TableId(DATABASE, "dbo", "bills")]
            assert state.status == "healthy", state.reason
            assert state.position is not None
            found.lsns.append(state.position)
            with server.connect(DATABASE) as connection:
                cursor = connection.execute("SELECT * FROM dbo.bills")
                names = [column[0] for column in cursor.description]
                found.rows.append({row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()})
        yield found


def load(bills: Bills, spark: SparkResource, **metadata: object) -> DataFrame:
    """The whole topic, as an asset that depends on the table gets it."""
    manager = EnvelopeIOManager(lake=bills.config.lake.path, spark=spark)
    asset = dg.AssetKey(["shop", DATABASE, "dbo", "bills"])
    return manager.load_input(dg.build_input_context(asset_key=asset, definition_metadata=metadata))


@pytest.mark.long
def test_any_session_reads_them_in_the_same_way(bills: Bills, spark_resource: SparkResource) -> None:
    session = spark_resource.spark_session.newSession()

    def alone(**arguments: Any) -> DataFrame:
        return read(session, bills.config.lake.path, TOPIC, **arguments)

    assert alone().schema == load(bills, spark_resource).schema
    assert rows_of(alone()) == rows_of(load(bills, spark_resource))
    assert {row.key.id for row in alone(generation=1).collect()} == {1, 2, 3}
    assert rows_of(alone(to_lsn=str(bills.lsns[1]))).keys() == bills.rows[1].keys()


def rows_of(frame: DataFrame) -> dict[int, dict[str, Any]]:
    """The rows that the events lead to."""
    rows: dict[int, dict[str, Any]] = {}
    for event in frame.where("value is not null").orderBy("position").collect():
        rows.pop(event.key.id, None)
        if event.value.after is not None:
            rows[event.key.id] = event.value.after.asDict()
    return rows


def test_all_generations_are_read_as_one(bills: Bills, spark_resource: SparkResource) -> None:
    frame = load(bills, spark_resource)
    tables = TopicTables(Location.of(bills.config.lake), "reader")
    assert tables.generations(TOPIC) == [TOPIC, f"{TOPIC}@2", f"{TOPIC}@3", f"{TOPIC}@4"]
    after = {field.name: field.dataType for field in frame.schema["value"].dataType["after"].dataType}
    assert after["amount"] == StringType()
    assert after["amount@3"] == LongType()
    assert "amount@1" not in after
    assert rows_of(frame) == {
        2: {"id": 2, "amount@3": 20000000000, "amount": None, "due@2": 1767312002000, "due": None, "note": None},
        3: {"id": 3, "amount@3": 30, "amount": None, "due@2": 1767398403000, "due": None, "note": "three"},
        4: {"id": 4, "amount@3": None, "amount": "forty", "due@2": None, "due": 1767484804123456700, "note": None},
        5: {"id": 5, "amount@3": 50, "amount": None, "due@2": None, "due": None, "note": "five"},
    }


def test_each_generation_can_be_read_alone(bills: Bills, spark_resource: SparkResource) -> None:
    first = load(bills, spark_resource, **{"cdc/generation": 1})
    assert {row.key.id for row in first.collect()} == {1, 2, 3}
    last = load(bills, spark_resource, **{"cdc/generation": 4})
    assert [row.value.op if row.value else None for row in last.orderBy("position").collect()] == ["u", "d", None]


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_rows_at_an_earlier_lsn(bills: Bills, spark_resource: SparkResource, step: int) -> None:
    found = rows_of(load(bills, spark_resource, **{"cdc/to_lsn": str(bills.lsns[step])}))
    assert found.keys() == bills.rows[step].keys()
    for key, row in bills.rows[step].items():
        amounts = [found[key][name] for name in ("amount@3", "amount") if found[key][name] is not None]
        assert step == 4 or amounts == [row["amount"]]
        assert found[key]["note"] == row.get("note")


def test_older_versions_of_the_delta_table_stay_readable(bills: Bills, spark_resource: SparkResource) -> None:
    uri = Location.of(bills.config.lake).uri(TOPIC)
    newest = DeltaTable(uri)
    counts = []
    for version in range(1, newest.version() + 1):
        older = DeltaTable(uri, version=version)
        files = older.file_uris()
        rows = spark_resource.spark_session.read.parquet(*files).count() if files else 0
        assert older.to_pyarrow_table().num_rows == rows
        counts.append(rows)
    assert counts == sorted(counts)
    assert counts[-1] == 3
    assert columns_at(uri, 1) == ["id", "amount", "due"]
    assert columns_at(uri, newest.version()) == ["id", "amount", "due", "note"]


def columns_at(uri: str, version: int) -> list[str]:
    """Fields of `after` in a version of a topic table."""
    row = pa.schema(DeltaTable(uri, version=version).schema().to_arrow()).field("value").type.field("after").type
    return [field.name for field in row]
