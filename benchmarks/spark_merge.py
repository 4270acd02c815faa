"""One `MERGE` by Spark with Delta's jars, in an environment of its own: run as a file by `python -m benchmarks mirror`.

Nothing of this project is imported here: the environment has pyspark and Delta alone. Prints seconds, memory and files as JSON.
"""

import argparse
import json
import os
import time
from pathlib import Path

from pyspark.sql import SparkSession


def peak(process: int) -> int:
    """Greatest resident memory of a process in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def processor(process: int) -> float:
    """Processor seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Merge the source into the table, after a small merge that loads what there is to load."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--packages", required=True)
    parser.add_argument("--jars", required=True)
    parser.add_argument("--folder", required=True)
    options = parser.parse_args()
    settings = {
        "spark.jars.packages": options.packages,
        "spark.jars.ivy": options.jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    builder = SparkSession.builder.master("local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    java = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    statement = "MERGE INTO delta.`{}` t USING parquet.`{}` s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    folder, small = options.folder, f"{options.folder}/small"
    spark.read.parquet(f"{folder}/source.parquet").limit(100).write.format("delta").save(small)
    spark.sql(statement.format(small, f"{folder}/source.parquet")).collect()
    begun, busy = time.perf_counter(), processor(java)
    spark.sql(statement.format(f"{folder}/merged", f"{folder}/source.parquet")).collect()
    seconds, busy = time.perf_counter() - begun, processor(java) - busy
    done = spark.sql(f"DESCRIBE HISTORY delta.`{folder}/merged` LIMIT 1").collect()[0]["operationMetrics"]
    found = {
        "seconds": round(seconds, 2),
        "processor": round(busy, 2),
        "megabytes": peak(os.getpid()),
        "jvm": peak(java),
        "files": int(done["numTargetFilesAdded"]),
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
