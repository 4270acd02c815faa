"""Dagster's own runs on a cluster: a snapshot, its changes, and assets that read and write topics by the IO managers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets_tests.cluster.site import Site
from cdc_assets_tests.object_store import SECRET, lake_properties, open_store

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

DEFINITIONS = """
import os

import dagster as dg
from pyspark.sql import DataFrame

from cdc_assets import SparkResource, build_definitions

CUSTOMERS = dg.AssetKey(["shop", "SalesDb", "dbo", "customers.changes"])


@dg.asset(ins={"events": dg.AssetIn(CUSTOMERS, input_manager_key="shop_envelope_io")})
def counted(events: DataFrame) -> None:
    print("rows", events.count(), "by", events.sparkSession.sparkContext.master)


@dg.asset(
    key=["copy", "customers"],
    ins={"events": dg.AssetIn(CUSTOMERS, input_manager_key="shop_envelope_io")},
    io_manager_key="shop_envelope_io",
)
def copy(events: DataFrame) -> DataFrame:
    return events.repartition(4)


defs = dg.Definitions.merge(
    build_definitions(os.environ["CDC_CONFIG"], spark=SparkResource()), dg.Definitions(assets=[counted, copy])
)
"""
RANGE = {f"dagster/asset_partition_range_{end}": f"range_0{number}_of_08" for end, number in (("start", 1), ("end", 8))}


@pytest.fixture(params=["folder", "store"])
def own(site: Site, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The site with a capture of its own, into a folder that all hosts share or into an object store."""
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    if request.param == "folder":
        yield site.with_lake(tmp_path)
        return
    with open_store(site.network.head) as store:
        yield site.with_lake(tmp_path, **lake_properties(store))


def dagster(site: Site, *arguments: str) -> str:
    """What a command of Dagster, which runs on the cluster, has written."""
    environment = site.environment() | {"DAGSTER_HOME": str(site.shop.folder / "home")}
    command = [sys.executable, "-m", "dagster", *arguments]
    done = subprocess.run(command, env=environment, cwd=site.shop.folder, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert SECRET not in done.stdout + done.stderr
    return done.stdout + done.stderr


def test_runs_of_dagster_are_exact_and_its_assets_read_and_write_topics(own: Site) -> None:
    (own.shop.folder / "home").mkdir()
    (own.shop.folder / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    (own.shop.folder / "mine.py").write_text(DEFINITIONS)
    with own.read_by(1, 2):
        dagster(own, "job", "execute", "-f", "mine.py", "-j", "shop_snapshot", "--tags", json.dumps(RANGE))
    own.shop.add_customers(10)
    with own.read_by(1, 2):
        dagster(own, "job", "execute", "-f", "mine.py", "-j", "shop_changes")
    own.exact()
    events = len([event for event in own.shop.events("customers") if event["value"]["op"] == "c"])
    told = dagster(own, "asset", "materialize", "-f", "mine.py", "--select", "counted,copy/customers")
    assert f"rows {events} by {own.cluster.address}" in told
    assert events == len(own.shop.rows("copy.customers")) > 0
