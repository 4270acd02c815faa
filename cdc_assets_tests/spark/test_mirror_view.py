"""Mirrors and Spark: it runs their tasks, and reads their files, with all types, and the view of their versions."""

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.spark.runner import SparkTaskRunner
from cdc_assets.defs.spark import SparkResource
from cdc_assets.lake.keys import KeyPart
from cdc_assets.lake.location import Location
from cdc_assets.lake.row_shape import OPERATION, POSITION
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.files import write_parquet
from cdc_assets.mirror.fold import fold_keyed
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.mirror.shape import Shape, ShapeColumn
from cdc_assets_tests.unit.mirror.histories import lsn
from cdc_assets_tests.unit.mirror.shown_query import shown_query
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of, run
from mssql_standin.control import StandIn

SHAPE = Shape(
    (
        ShapeColumn("id", pa.int32(), False),
        ShapeColumn("credit", pa.decimal128(19, 4)),
        ShapeColumn("seen", pa.timestamp("us")),
        ShapeColumn("at", pa.string()),
        ShapeColumn("raw", pa.binary()),
    ),
    (KeyPart("id"),),
)


def test_the_view_gives_all_versions(spark_resource: SparkResource, tmp_path: Path) -> None:
    spark = spark_resource.lazy().session()
    moment = datetime(2026, 1, 2, 3, 4, 5, 6)  # noqa: DTZ001 - without zone, as the column
    values = {"id": 1, "seen": moment, "at": "03:04:05", "raw": b"\\x00"}
    events = [
        {**values, "credit": Decimal("1.5"), POSITION: f"{lsn(1)}/0", OPERATION: "c"},
        {**values, "credit": Decimal("2.5"), POSITION: f"{lsn(2)}/0", OPERATION: "u"},
    ]
    done = fold_keyed(SHAPE, SHAPE.no_rows(), pa.Table.from_pylist(events, schema=SHAPE.events))
    location = Location(str(tmp_path))
    for name, table in (("lines", done.rows), ("lines_history", done.ended)):
        write_parquet(location, name, "one.parquet", table, [])
        spark.read.parquet(str(tmp_path / name)).createOrReplaceTempView(name)
    rows = spark.sql(shown_query(SHAPE.names, "lines")).orderBy("_valid_from_lsn").collect()
    assert [(row["credit"], row["_valid_to_lsn"], row["_operation"]) for row in rows] == [
        (Decimal("1.5000"), lsn(2), "u"), (Decimal("2.5000"), None, None)
    ]  # fmt: skip
    assert rows[0]["seen"] == moment


def test_spark_runs_the_tasks_of_mirrors(runner: SparkTaskRunner, tmp_path: Path) -> None:
    with StandIn(databases=(DATABASE,)) as server:
        server.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, note nvarchar(9))", database=DATABASE)
        server.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL",
            database=DATABASE,
        )
        server.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b')", database=DATABASE)
        config = config_of(server.port, server.password, str(tmp_path))
        server.agent.drain()
        run(config, "snapshot")
        server.execute("DELETE FROM dbo.t WHERE id = 1", database=DATABASE)
        server.agent.drain()
        run(config, "stream")
    mirrors = CaptureMirrors(config, runner, SystemClock())
    assert not mirrors.catch_up()
    topic = f"shop.{DATABASE}.dbo.t"
    versions = MirrorReader(mirrors.tables, topic).versions().to_pylist()
    assert sorted((row["id"], row["_operation"]) for row in versions) == [(1, "d"), (2, None)]
