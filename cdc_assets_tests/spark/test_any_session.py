"""The lake in sessions that nobody of ours has started: what is read is what the lake holds, and what is not there is named."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from cdc_assets import create_views, read
from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import EventsDroppedError, InvalidValueError, LakeError
from cdc_assets.lake.location import Location
from cdc_assets.lake.retained import Retained, announce
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets_tests.shop import ROOT, Shop, open_shop

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"),
]
BELOW = "shop.SalesDb.dbo."
CUSTOMERS = f"{BELOW}customers"
JOIN = "SELECT c.name, count(*) AS n FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY c.name"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop with mirrors: customers read, added, changed and removed, and then mirrored again."""
    with open_shop(tmp_path_factory.mktemp("any")) as found, dg.DagsterInstance.ephemeral() as instance:
        mirrors = CaptureMirrors(found.config(), LocalRunner(2), SystemClock())
        assert found.snapshot(instance).success
        assert not mirrors.catch_up()
        found.add_customers(3)
        found.execute("UPDATE dbo.customers SET name = N'changed' WHERE id < 5")
        found.execute("DELETE FROM dbo.customers WHERE id = 42")
        assert found.changes(instance).success
        assert not mirrors.catch_up()
        yield found


@pytest.fixture
def lake(shop: Shop, tmp_path: Path) -> str:
    """A copy of the lake for one test."""
    shutil.copytree(shop.folder / "lake", tmp_path / "lake")
    return str(tmp_path / "lake")


@pytest.fixture
def session(spark_resource: SparkResource) -> SparkSession:
    """A session with settings and views of its own."""
    return spark_resource.spark_session.newSession()


def names_of(frame: DataFrame) -> dict[int, str]:
    return {row.id: row.name for row in frame.collect()}


def on_server(shop: Shop) -> dict[int, str]:
    return dict(shop.execute("SELECT id, name FROM dbo.customers"))


ALONE = """
import sys
from pyspark.sql import SparkSession

session = SparkSession.builder.{kind}.getOrCreate()

from cdc_assets import create_views, current_rows, read

lake = sys.argv[1]
events = read(session, lake, "shop.SalesDb.dbo.customers")
print("events", events.count(), current_rows(events).count())
for row in read(session, lake, "shop.SalesDb.dbo.customers.__current").orderBy("id").collect():
    print("row", row.id, row.name)
print("former", read(session, lake, "shop.SalesDb.dbo.customers.__history").count())
create_views(session, lake, "shop.SalesDb.dbo.")
print("joined", session.sql('''{join}''').count())
assert not [name for name in sys.modules if name.startswith("dagster")]
session.stop()
"""


@pytest.mark.jvms
@pytest.mark.parametrize("kind", ["master('local[1]')", "remote('local[1]')"])
def test_a_session_of_somebody_else_without_dagster(shop: Shop, tmp_path: Path, kind: str) -> None:
    script = tmp_path / "alone.py"
    script.write_text(ALONE.format(kind=kind, join=JOIN))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(script), str(shop.folder / "lake")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = on_server(shop)
    joined = shop.execute(JOIN.replace("orders o", "dbo.orders o").replace("customers c", "dbo.customers c"))
    expected = [f"events {len(shop.events('customers'))} {len(rows)}"]
    expected += [f"row {identity} {name}" for identity, name in sorted(rows.items())]
    assert done.stdout.splitlines() == [*expected, "former 5", f"joined {len(joined)}"]


@pytest.mark.long
def test_the_script_of_the_document(
    shop: Shop, lake: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "reading.md").read_text().split("## In any Spark session\n")[1]
    (Path(lake).parent / "var").mkdir()
    (Path(lake).parent / "var" / "lake").symlink_to(lake)
    monkeypatch.chdir(Path(lake).parent)
    exec(compile(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], "reading.md", "exec"), {})  # noqa: S102 - our own document
    told = capfd.readouterr().out
    assert f"|  r|{len(shop.execute('SELECT id FROM dbo.orders')):5}|" in told
    assert "|changed|" in told.replace(" ", "")


@pytest.mark.jvms
def test_rows_that_no_version_holds_are_not_read(shop: Shop, lake: str, session: SparkSession) -> None:
    events, mirror = len(shop.events("customers")), f"{CUSTOMERS}.__current"
    DeltaTable(f"{lake}/{CUSTOMERS}").optimize.compact()
    [part] = [path for path in Path(lake, mirror).glob("*.parquet") if path.name in files_of(lake, mirror)]
    shutil.copy(part, part.with_name("of-an-attempt-that-was-given-up.parquet"))
    for name, count in ((CUSTOMERS, events), (mirror, len(on_server(shop)))):
        assert session.read.parquet(f"{lake}/{name}").count() > count
        assert read(session, lake, name).count() == count


def files_of(lake: str, table: str) -> set[str]:
    return set(pa.table(DeltaTable(f"{lake}/{table}").get_add_actions())["path"].to_pylist())


def test_a_frame_stays_as_it_is(shop: Shop, lake: str, session: SparkSession) -> None:
    frame = read(session, lake, CUSTOMERS)
    DeltaTable(f"{lake}/{CUSTOMERS}").optimize.compact()
    assert frame.count() == read(session, lake, CUSTOMERS).count() == len(shop.events("customers"))


def test_lsns_bound_what_is_read(shop: Shop, lake: str, session: SparkSession) -> None:
    lsns = [event["position"][:22] for event in shop.events("customers")]
    first, last = lsns[40], lsns[-1]
    found = [row.position[:22] for row in read(session, lake, CUSTOMERS, from_lsn=first, to_lsn=last).collect()]
    assert sorted(found) == [lsn for lsn in lsns if first < lsn <= last]
    announce(TopicTables(Location(lake), "shop"), CUSTOMERS, 0, Retained(first, 1))
    with pytest.raises(EventsDroppedError, match="begin at earliest"):
        read(session, lake, CUSTOMERS)
    assert read(session, lake, CUSTOMERS, from_lsn="earliest").count() == len([lsn for lsn in lsns if lsn > first])


def test_settings_of_the_session_hide_no_missing_file(lake: str, session: SparkSession) -> None:
    for name in ("Missing", "Corrupt"):
        session.conf.set(f"spark.sql.files.ignore{name}Files", "true")
    frame = read(session, lake, f"{CUSTOMERS}.__current")
    for path in Path(lake, f"{CUSTOMERS}.__current").glob("*.parquet"):
        path.unlink()
    with pytest.raises(Exception, match="does not exist"):
        frame.collect()


def test_any_name_of_a_folder_will_do(shop: Shop, lake: str, session: SparkSession) -> None:
    odd = shutil.copytree(lake, Path(lake).with_name("la[ke] {1}*"))
    assert read(session, odd, f"{CUSTOMERS}.__current").count() == len(on_server(shop))


def test_views_of_all_mirrors(shop: Shop, lake: str, session: SparkSession) -> None:
    views = create_views(session, lake)
    assert views["shop_SalesDb_dbo_customers"] == f"{CUSTOMERS}.__current"
    assert views["shop_SalesDb_dbo_customers__history"] == f"{CUSTOMERS}.__history"
    assert len(views) == 8
    assert names_of(session.sql("SELECT id, name FROM shop_SalesDb_dbo_customers")) == on_server(shop)
    assert create_views(session, lake, "shop.SalesDb.dbo").keys() == create_views(session, lake, BELOW).keys()
    assert session.sql("SELECT * FROM customers__history").count() == 5


def test_topics_whose_names_have_another_delimiter(shop: Shop, lake: str, session: SparkSession) -> None:
    for end in ("", ".__current", ".__history"):
        Path(lake, f"{CUSTOMERS}{end}").rename(Path(lake, f"shop-SalesDb-dbo-customers{end}"))
    assert read(session, lake, "shop-SalesDb-dbo-customers").count() == len(shop.events("customers"))
    assert set(create_views(session, lake, "shop-SalesDb-dbo-")) == {"customers", "customers__history"}
    assert names_of(session.sql("SELECT * FROM customers")) == on_server(shop)


def test_one_mirror_that_cannot_be_read_leaves_the_others(lake: str, session: SparkSession) -> None:
    for commit in Path(lake, f"{BELOW}orders.__current", "_delta_log").iterdir():
        commit.write_text("damaged")
    Path(lake, f"{BELOW}coming.__current").mkdir()
    with pytest.raises(LakeError, match=r"orders\.__current .*7 views are there"):
        create_views(session, lake, BELOW)
    assert session.sql("SELECT * FROM customers").count()


def test_two_mirrors_for_one_view(lake: str, session: SparkSession) -> None:
    shutil.copytree(Path(lake, f"{CUSTOMERS}.__current"), Path(lake, "shop.SalesDb.dbo-Customers.__current"))
    with pytest.raises(InvalidValueError, match="narrow the names by below"):
        create_views(session, lake)
    assert not session.catalog.listTables()
    assert create_views(session, lake, BELOW)


def test_wrong_names_are_answered_with_the_right_ones(lake: str, tmp_path: Path, session: SparkSession) -> None:
    with pytest.raises(LakeError, match=rf"no table 'customers\.current' .* It has {CUSTOMERS}\.__current, "):
        read(session, lake, "customers.current")
    with pytest.raises(LakeError, match="It has no table at all"):
        read(session, tmp_path / "nowhere", CUSTOMERS)
    with pytest.raises(LakeError, match=r"no mirror whose name begins with shop\.Other"):
        create_views(session, lake, "shop.Other")
    with pytest.raises(InvalidValueError, match="read a generation of it by generation="):
        read(session, lake, f"{CUSTOMERS}@2")
    with pytest.raises(InvalidValueError, match="1 to 1"):
        read(session, lake, CUSTOMERS, generation=2)
    with pytest.raises(InvalidValueError, match="without a range"):
        read(session, lake, f"{CUSTOMERS}.__current", from_lsn="earliest")
    for given in ({}, {"lake": lake, "config": "shop.json"}):
        with pytest.raises(InvalidValueError, match="give one of the two"):
            read(session, name=CUSTOMERS, **given)


def test_the_place_may_stand_in_a_configuration(
    shop: Shop, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CDC_SHOP_PASSWORD", raising=False)  # of the server, which is not needed
    assert read(session, config=shop.file, name=CUSTOMERS).count() == len(shop.events("customers"))
    assert create_views(session, config=shop.file, below=BELOW)


@pytest.mark.parametrize("what", ["deletionVectors", "columnMapping", "partition columns"])
def test_a_table_whose_files_do_not_tell_its_rows_is_refused(tmp_path: Path, session: SparkSession, what: str) -> None:
    rows, place = pa.table({"id": [1, 2], "part": [1, 2]}), str(tmp_path / "t")
    if what == "columnMapping":
        write_deltalake(place, rows, configuration={"delta.columnMapping.mode": "name"})
    else:
        write_deltalake(place, rows, partition_by=["part"] if what == "partition columns" else None)
    if what == "deletionVectors":
        DeltaTable(place).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(LakeError, match=f"uses {what}"):
        read(session, tmp_path, "t")
