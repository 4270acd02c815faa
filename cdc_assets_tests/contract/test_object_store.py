"""A lake in an object store, by the S3 protocol: capture, crash, fence, read back and append, against a store on loopback."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import dagster as dg
import pyarrow as pa
import pytest
from pyarrow import fs
from pyspark.sql import DataFrame

from cdc_assets import create_views, read
from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import LakeSettings
from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import FencedError, LakeAwayError, LakeError
from cdc_assets.lake import delta_log, presence
from cdc_assets.lake.delta_log import CHECKPOINT_EVERY
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets_tests.object_store import BUCKET, SECRET, lake_properties, open_store, options
from cdc_assets_tests.shop import Shop, key, open_shop
from cdc_assets_tests.unit.lake.writing import schema_of, write
from cdc_assets_tests.warm import run_module

pytestmark = [
    pytest.mark.contract,
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"),
]

CAPTURE = ("capture", "--local")


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Address of an S3 store with one bucket."""
    with open_store() as address:
        yield address


@pytest.fixture(scope="module")
def shop(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop whose lake lies in the store."""
    with open_shop(tmp_path_factory.mktemp("store")) as opened:
        opened.write(lake_properties(store) | {"lake.compact.after.files": "4"})
        yield opened


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key comes from the environment."""
    monkeypatch.setenv("LAKE_SECRET", SECRET)


@pytest.fixture
def captured(shop: Shop, secret: None) -> None:
    """Changes in the lake, the last of them in a transaction of its own."""
    for count in (3, 1):
        command(shop, *CAPTURE)
        shop.add_customers(count)
    command(shop, *CAPTURE)


def command(shop: Shop, *arguments: str, crash_at: str = "") -> str:
    """Run a command of the command line; what it said."""
    environment = shop.environment | {"CDC_CRASH_AT": crash_at}
    done = run_module("cdc_assets.cli.main", *arguments, "-c", str(shop.file), environment=environment)
    assert done.returncode == (-9 if crash_at else 0), done.said
    assert SECRET not in done.said
    return done.said


def test_killed_captures_lose_and_double_nothing(shop: Shop) -> None:
    command(shop, *CAPTURE, crash_at="table-committed:2")
    command(shop, *CAPTURE)
    shop.add_customers(3)
    command(shop, *CAPTURE, crash_at="files-written")
    shop.add_customers(3)
    command(shop, *CAPTURE)
    for _ in range(2):  # enough files for the compaction
        shop.add_customers(1)
        command(shop, *CAPTURE)
    assert shop.differences() == {}
    assert shop.doubled() == []
    assert "48" in command(shop, "summary")


def test_writer_that_was_overtaken_is_fenced(shop: Shop) -> None:
    config = shop.config()
    first, second = (Manifest(TopicTables(Location.of(config.lake), config.name), "shop") for _ in range(2))
    now = datetime.now(UTC)
    first.claim(now)
    second.claim(now)
    with pytest.raises(FencedError):
        first.mark(now, "SalesDb", list(first.state.tables.values()))
    assert second.state.tables == first.state.tables


def load(shop: Shop, store: str, spark: SparkResource, role: str, **metadata: str) -> DataFrame:
    """What an asset that depends on the customers gets."""
    context = dg.build_input_context(asset_key=key("customers", role), definition_metadata=metadata)
    return manager(store, spark).load_input(context)


def manager(store: str, spark: SparkResource) -> EnvelopeIOManager:
    """For the lake in the store."""
    return EnvelopeIOManager(lake=f"s3://{BUCKET}/shop", storage_options=options(store), spark=spark)


@pytest.mark.jvms
@pytest.mark.spark
@pytest.mark.usefixtures("captured")
def test_spark_reads_what_was_captured(
    shop: Shop, store: str, spark_resource: SparkResource, capfd: pytest.CaptureFixture[str]
) -> None:
    assert load(shop, store, spark_resource, "snapshot").count() == 40
    changes = load(shop, store, spark_resource, "changes")
    names = [row[0] for row in changes.orderBy("position").select("value.after.name").collect()]
    events = [event["value"] for event in shop.events("customers")]
    assert names == [event["after"]["name"] for event in events if event["op"] == "c"]
    last = shop.events("customers")[-2]["position"][:22]
    assert load(shop, store, spark_resource, "changes", **{"cdc/from_lsn": last}).count() == 1
    changes.explain(extended=True)
    assert SECRET not in capfd.readouterr().out


@pytest.mark.jvms
@pytest.mark.spark
@pytest.mark.usefixtures("captured")
def test_any_session_reads_mirrors_in_the_store(
    shop: Shop, store: str, spark_resource: SparkResource, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not CaptureMirrors(shop.config(), LocalRunner(2), SystemClock()).catch_up()
    session, lake, below = spark_resource.spark_session.newSession(), f"s3://{BUCKET}/shop", "shop.SalesDb.dbo."
    mirror = read(session, lake, f"{below}customers.__current", storage_options=options(store))
    columns = "id, name, credit, created"
    assert sorted(map(tuple, mirror.selectExpr(*columns.split(", ")).collect())) == sorted(
        map(tuple, shop.execute(f"SELECT {columns} FROM dbo.customers"))
    )
    assert len(create_views(session, config=shop.file, below=below)) == 8
    joined = session.sql("SELECT o.id FROM orders o JOIN customers c ON o.customer_id = c.id")
    assert joined.count() == len(shop.execute("SELECT id FROM dbo.orders"))
    joined.explain(extended=True)
    with pytest.raises(LakeError, match=r"It has shop\.SalesDb\.dbo\.customers, ") as unknown:
        read(session, lake, "shop.SalesDb.dbo.customer", storage_options=options(store))
    with pytest.raises((LakeError, LakeAwayError)) as away:
        read(session, lake, "x", storage_options=options(store) | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    assert SECRET not in f"{capfd.readouterr()} {unknown.getrepr()} {away.getrepr()}"


@pytest.mark.jvms
@pytest.mark.spark
@pytest.mark.usefixtures("captured")
def test_frame_is_appended_to_the_store(shop: Shop, store: str, spark_resource: SparkResource) -> None:
    frame = load(shop, store, spark_resource, "changes")
    rows = frame.count()

    @dg.asset(key=["copy", "customers"], io_manager_key="envelope_io", metadata={"cdc/write": "append"})
    def copy() -> DataFrame:
        return frame

    for appended in (rows, 2 * rows):
        assert dg.materialize([copy], resources={"envelope_io": manager(store, spark_resource)}).success
        assert len(shop.rows("copy.customers")) == appended


@pytest.mark.long
def test_log_in_the_store_stays_short_and_only_files_that_are_there_are_committed(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "_GRACE_S", -1.0)
    monkeypatch.setattr(delta_log, "MIN_COMMITS", 1)
    monkeypatch.setattr(presence, "_LATE_S", 0.0)
    settings = LakeSettings(f"s3://{BUCKET}/short", tuple(options(store).items()), log_commits=1)
    tables, schema = TopicTables(Location.of(settings), "shop", settings), schema_of(id=pa.int32())
    last = 3 * CHECKPOINT_EVERY
    for window in range(1, last + 1):
        assert tables.commit("topic", schema, write(tables, schema, window, {"id": window}), window, {})
    log = tables.location.existing("topic").get_file_info(fs.FileSelector("_delta_log"))
    commits = sorted(info.base_name for info in log if info.base_name.endswith(".json"))
    assert 0 < len(commits) <= 2 * CHECKPOINT_EVERY
    again = TopicTables(tables.location, "shop")
    assert (again.reached("topic"), again.row_count("topic")) == (last, last)

    newest = max(info.path for info in log if info.base_name.endswith(".checkpoint.parquet"))
    tables.location.existing("topic").delete_file(newest)
    assert TopicTables(tables.location, "shop").row_count("topic") == last, "it is done without"

    [file] = write(tables, schema, last + 1, {"id": 0})
    for wrong in (replace(file, path="elsewhere.parquet"), replace(file, size=file.size + 1)):
        with pytest.raises(LakeError, match="is not shared between driver and executors"):
            again.commit("topic", schema, [file, wrong], last + 1, {})
    assert TopicTables(tables.location, "shop").reached("topic") == last
    assert again.commit("topic", schema, [file], last + 1, {})


@pytest.mark.parametrize(
    ("lake", "changed", "told"),
    [
        ("s3://nowhere/shop", {}, "NoSuchBucket"),
        (f"s3://{BUCKET}/shop", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "refused"),
        (f"s3://{BUCKET}/shop", {"AWS_ALLOW_HTTP": "false"}, "scheme is not allowed"),
    ],
)
def test_store_that_cannot_be_used_is_reported_without_its_secrets(
    store: str, lake: str, changed: dict[str, str], told: str
) -> None:
    location = Location.of(LakeSettings(lake, tuple((options(store) | changed).items())))
    with pytest.raises((LakeError, LakeAwayError), match=told) as error:
        location.check_writable()
    assert SECRET not in f"{error.value} {error.value.__cause__} {location!r} {error.getrepr()}"


@pytest.mark.long
def test_secrets_are_not_shown_by_settings_and_resources(shop: Shop) -> None:
    config = shop.config()
    assert dict(config.lake.storage_options)["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert SECRET not in repr(config)
    assert SECRET not in repr(list((shop.definitions().resources or {}).values()))
    assert SECRET not in shop.file.read_text()
