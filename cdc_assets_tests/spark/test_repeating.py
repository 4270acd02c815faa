"""Spark reads columns that were written as runs, with each of its readers of Parquet."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc_assets.defs.spark import SparkResource
from cdc_assets_tests.unit.lake.repeating import GROUPS, SCHEMA, written

pytestmark = pytest.mark.spark
VECTORIZED = "spark.sql.parquet.enableVectorizedReader"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of each kind, and what they hold, written plainly."""
    found = tmp_path_factory.mktemp("repeating")
    for number, groups in enumerate(GROUPS.values()):
        (found / f"{number:02}.parquet").write_bytes(written(groups))
    return found


@pytest.mark.long
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_gets_the_rows(folder: Path, spark_resource: SparkResource, vectorized: str) -> None:
    spark: SparkSession = spark_resource.spark_session
    before = spark.conf.get(VECTORIZED)
    spark.conf.set(VECTORIZED, vectorized)
    try:
        for number, groups in enumerate(GROUPS.values()):
            expected = pa.Table.from_batches([batch for group in groups for batch in group], SCHEMA)
            read = spark.read.parquet(str(folder / f"{number:02}.parquet"))
            found = pa.Table.from_batches(read.coalesce(1).toArrow().to_batches()).cast(SCHEMA)
            assert found.to_pylist() == expected.to_pylist(), list(GROUPS)[number]
            assert read.filter("value.source.ts_ms = 5").count() == sum(
                bool(row["value"]) and row["value"]["source"]["ts_ms"] == 5 for row in expected.to_pylist()
            )
    finally:
        spark.conf.set(VECTORIZED, before)
