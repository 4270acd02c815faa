"""A session that a user's own resource of dagster-pyspark makes is used as it is, and left so."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from dagster_pyspark import LazyPySparkResource, PySparkResource

from cdc_assets import EnvelopeIOManager, SchemaHistoryIOManager
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.spark import SparkResource, spark_of
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets_tests.shop import Shop, open_shop

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

_RUNS = """
import logging, sys, threading, time
from pathlib import Path
import dagster as dg
import psutil
from dagster_pyspark import LazyPySparkResource, PySparkResource
from cdc_assets import EnvelopeIOManager, build_definitions
from cdc_assets.defs.partitions import all_ranges, range_partitions

logging.getLogger("cdc_assets").setLevel(logging.INFO)
kind, file = {"PySparkResource": PySparkResource, "LazyPySparkResource": LazyPySparkResource}[sys.argv[1]], sys.argv[2]
begun, ended, long = Path(sys.argv[3], "begun"), Path(sys.argv[3], "ended"), []
own = {"spark": {"master": "local[2]", "app": {"name": "users own"}, "ui": {"enabled": False}}}

@dg.asset(required_resource_keys={"spark"})
def users(context):
    spark = context.resources.spark.spark_session
    application = spark.sparkContext
    return application.applicationId, application.appName, spark.conf.get("spark.sql.shuffle.partitions")

def wait_for_the_end(number):
    begun.touch()
    while not ended.exists():
        time.sleep(0.05)
    return number

def of_the_user(context):
    long.extend(context.parallelize([7], 1).map(wait_for_the_end).collect())

given = kind(spark_config=own)

@dg.asset(ins={"rows": dg.AssetIn(key=["shop", "SalesDb", "dbo", "customers.snapshot"], input_manager_key="envelope_io")})
def loaded(rows):
    return rows.sparkSession.sparkContext.applicationId, rows.count()

definitions = dg.Definitions.merge(build_definitions(file, spark=given), dg.Definitions(
    assets=[users], jobs=[dg.define_asset_job("users_job", [users])], resources={"spark": given}))
definitions.get_repository_def()
java = lambda: [child.pid for child in psutil.Process().children() if "java" in child.name()]
print("JVMs", len(java()))
instance = dg.DagsterInstance.ephemeral()
found = []
snapshot = dict(tags=dict(all_ranges(range_partitions(8))), run_config={"ops": {"shop_read_tables": {"config": {"due_only": True}}}})
for job, options in (("users_job", {}), ("shop_snapshot", snapshot), ("users_job", {})):
    if job == "shop_snapshot":
        from pyspark import SparkContext
        users_own = threading.Thread(target=of_the_user, args=(SparkContext.getOrCreate(),))
        users_own.start()
        while not begun.exists():
            time.sleep(0.05)
    done = definitions.resolve_job_def(job).execute_in_process(instance=instance, **options)
    if job == "users_job":
        found.append(done.output_for_node("users"))
ended.touch()
users_own.join()
manager = EnvelopeIOManager(lake=sys.argv[4], spark=given)
source = dg.SourceAsset(loaded.keys_by_input_name["rows"], io_manager_key="envelope_io")
application, rows = dg.materialize([loaded, source], resources={"envelope_io": manager}, selection=[loaded]).output_for_node("loaded")
print("long", long, "loaded", rows, application == found[0][0])
print(found[0] == found[1], found[0][1:], "JVMs", len(java()))
"""


_CLUSTER = """
import os
from dagster_pyspark import LazyPySparkResource
from pyspark import SparkContext
from pyspark.sql import SparkSession
from cdc_assets.adapters.spark.session import stop_spark
from cdc_assets.core.jobs import Job
from cdc_assets.core.ran_on import JobAccount
from cdc_assets.defs.spark import spark_of

class Users(LazyPySparkResource):
    def _init_session(self):
        if self._spark_session is None:
            builder = SparkSession.builder.master("local-cluster[1,3,512]").config("spark.executor.memory", "512m")
            self._spark_session = builder.getOrCreate()

runner, account = spark_of(Users(spark_config={})).early_runner(), JobAccount()
print(runner.run(abs, [-1], Job("window", rows=1, account=account)), account.of("window").tasks, runner.parallelism)
print([file.rpartition("/")[2][:10] for file in SparkContext.getOrCreate().listFiles])
stop_spark()
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as found:
        yield found


@pytest.mark.jvms
@pytest.mark.parametrize("kind", [PySparkResource, LazyPySparkResource])
def test_one_application_for_the_captures_and_a_users_assets(
    shop: Shop, kind: type[PySparkResource | LazyPySparkResource]
) -> None:
    with shop.in_environment(), patch.dict(os.environ, {"PYSPARK_PYTHON": sys.executable}):  # it is the user's to set
        done = subprocess.run(
            [sys.executable, "-c", _RUNS, kind.__name__, str(shop.file), str(shop.folder), str(shop.folder / "lake")],
            capture_output=True, text=True, timeout=500,
        )  # fmt: skip
    assert done.stdout.splitlines() == [
        "JVMs 0", "long [7] loaded 40 True", "True ('users own', '200') JVMs 1",
    ], done.stderr[-5000:]  # fmt: skip
    assert (len(shop.events("customers")), shop.differences()) == (40, {})


@pytest.mark.jvms
def test_users_own_cluster_runs_small_jobs_too_and_tells_its_own_size() -> None:
    done = subprocess.run([sys.executable, "-c", _CLUSTER], capture_output=True, text=True, timeout=500)
    assert done.stdout.splitlines() == ["[1] 1 3", "['cdc_assets']"], done.stderr[-5000:]


@pytest.mark.parametrize("kind", [SparkResource, PySparkResource, LazyPySparkResource])
def test_all_that_needs_spark_takes_any_of_its_resources(
    kind: type[SparkResource | PySparkResource | LazyPySparkResource],
) -> None:
    given = kind(spark_config={"spark.master": "local[3]"})
    server = SqlServerCdcResource(config_file="shop.json")
    holders = (
        EnvelopeIOManager(lake="lake", spark=given),
        SchemaHistoryIOManager(lake="lake", spark=given),
        CaptureResource(server=server, spark=given),
    )
    assert [holder.spark.lazy().settings.master for holder in holders] == ["local[3]"] * 3


def test_active_session_is_used_and_the_names_of_what_differs_are_told(
    spark_resource: SparkResource, caplog: pytest.LogCaptureFixture
) -> None:
    active = spark_resource.spark_session
    caplog.set_level(logging.INFO, "cdc_assets")
    other = SparkResource(master="local[3]", spark_config={"spark.users.own": "secret"})
    assert other.spark_session.sparkContext is active.sparkContext
    assert "An active session of Spark is used; these properties differ: spark.master, spark.users.own." in caplog.text
    assert "secret" not in caplog.text


def test_nested_properties_are_flattened() -> None:
    config = {"spark": {"sql": {"shuffle": {"partitions": 9}}}, "spark.master": "local[3]"}
    for resource in (SparkResource(spark_config=config), spark_of(PySparkResource(spark_config=config))):
        settings = resource.lazy().settings
        assert (settings.master, settings.config) == ("local[3]", {"spark.sql.shuffle.partitions": "9"})
