"""Sessions that nobody of ours has started, on executors that have the libraries of tasks and not our code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_assets_tests.cluster.site import Site
from cdc_assets_tests.object_store import BUCKET, SECRET, lake_properties, open_store, options

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SCRIPT = """
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.remote(sys.argv[1]) if sys.argv[1].startswith("sc:") else SparkSession.builder.master(sys.argv[1])
for name, text in zip(sys.argv[2::2], sys.argv[3::2]):
    builder = builder.config(name, text)
session = builder.getOrCreate()

from cdc_assets import read

for name in ("shop.SalesDb.dbo.customers", "shop.__schema_history"):
    frame = read(session, "s3://{bucket}/shop", name, storage_options={options})
    print(name, frame.count(), len(frame.collect()))
session.stop()
"""


@pytest.mark.parametrize("connect", [False, True])
def test_a_lake_in_a_store_is_read(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, connect: bool
) -> None:
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    python = site.properties["spark.pyspark.python"]
    with open_store(site.network.head) as store:
        own = site.with_lake(tmp_path, **lake_properties(store))
        first = own.capture()
        assert first.returncode == 0, first.stderr
        script = tmp_path / "alone.py"
        script.write_text(SCRIPT.format(bucket=BUCKET, options=options(store)))
        if connect:
            arguments = [site.cluster.add_connect_server(site.network.head, python)]
        else:
            conf = {"spark.pyspark.python": python, "spark.driver.host": site.network.head, "spark.ui.enabled": "false"}
            arguments = [site.cluster.address, *(text for pair in conf.items() for text in pair)]
        try:
            done = subprocess.run(
                [sys.executable, str(script), *arguments],
                env=os.environ | {"PYSPARK_PYTHON": python},
                capture_output=True,
                text=True,
                timeout=600,
            )
        finally:
            site.cluster.kill("connect")
        assert done.returncode == 0, done.stderr[-5000:]
        counts = {name: len(own.shop.rows(name)) for name in ("shop.SalesDb.dbo.customers", "shop.__schema_history")}
        assert done.stdout.splitlines() == [f"{name} {count} {count}" for name, count in counts.items()]
        assert SECRET not in done.stdout + done.stderr
