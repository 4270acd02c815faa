"""Fold a topic with Spark's Kafka source: `spark.py SERVERS TOPIC FOLDER JARS`; prints the rows as JSON."""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

KINDS = {
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "boolean": "boolean",
    "double": "double",
    "string": "string",
}


def structure(schema: dict[str, Any]) -> str:
    """Spark's type of a Connect schema."""
    if schema["type"] != "struct":
        return KINDS[schema["type"]]
    return "struct<" + ", ".join(f"`{field['field']}`: {structure(field)}" for field in schema["fields"]) + ">"


def main(servers: str, topic: str, folder: str, jars: str) -> None:
    """Read what is new into a folder, and fold all that is there."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    options = {
        "kafka.bootstrap.servers": servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    stream = spark.readStream.format("kafka").options(**options).load()
    written = stream.writeStream.trigger(availableNow=True).option("checkpointLocation", f"{folder}/checkpoint")
    written.format("parquet").start(f"{folder}/records").awaitTermination()
    records = spark.read.parquet(f"{folder}/records").withColumns(
        {"key": f.col("key").cast("string"), "value": f.col("value").cast("string")}
    )
    [first] = records.where("value is not null").limit(1).collect()
    types = {
        name: structure(json.loads(text)["schema"]) for name, text in (("key", first["key"]), ("value", first["value"]))
    }
    parsed = [
        f.from_json(name, f"struct<payload: {kind}>", {"mode": "FAILFAST"}).alias(name) for name, kind in types.items()
    ]
    events = records.select(*parsed, "partition", "offset")
    newest = Window.partitionBy("key.payload").orderBy(f.col("offset").desc())
    last = events.withColumn("turn", f.row_number().over(newest)).where("turn = 1")
    rows = last.where("value.payload.after is not null").select("value.payload.after.*").orderBy("id")
    sys.stdout.write("\n" + json.dumps([row.asDict() for row in rows.collect()]) + "\n")


main(*sys.argv[1:])
