"""A backfill of key ranges reads exactly those rows again."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from cdc_assets.config.settings import ColumnRule, EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.steps import listening
from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.partitions import range_partitions
from cdc_assets.defs.range_facts import partition_facts, shown_ranges
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import LakeError
from cdc_assets.snapshot import plan, rounds
from cdc_assets_tests.shop import Shop, key, open_shop

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]

ROWS = 8000
"""The least that is cut into eight ranges."""
_LEDGER = """
CREATE TABLE dbo.ledger (id int NOT NULL PRIMARY KEY, amount int NOT NULL);
WITH digit AS (SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)
INSERT INTO dbo.ledger (id, amount)
SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d, a.d FROM digit a, digit b, digit c, digit e WHERE e.d < 8;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'ledger', @role_name = NULL;
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, instance: dg.DagsterInstance) -> Iterator[Shop]:
    """A shop with a ledger that is large enough for eight ranges, snapshotted."""
    folder: Path = tmp_path_factory.mktemp("ranges")
    with open_shop(folder) as found:
        found.execute(_LEDGER)
        found.execute(_NAMED)
        assert found.snapshot(instance).success
        assert len(found.events("ledger")) == ROWS
        yield found


def again(shop: Shop, instance: dg.DagsterInstance, first: int, last: int) -> Counter[int]:
    """Keys of the events that a backfill of ranges `first` to `last` adds, all of them READs."""
    before = {event["position"] for event in shop.events("ledger")}
    tags = {
        "dagster/asset_partition_range_start": f"range_{first:02d}_of_08",
        "dagster/asset_partition_range_end": f"range_{last:02d}_of_08",
    }
    result = shop.snapshot(instance, due_only=False, assets=[key("ledger", "snapshot")], tags=tags)
    assert result.success
    new = [event for event in shop.events("ledger") if event["position"] not in before]
    assert {event["value"]["op"] for event in new} == {"r"}
    return Counter(event["key"]["id"] for event in new)


_NAMED = """
CREATE TABLE dbo.named (name varchar(20) NOT NULL PRIMARY KEY);
INSERT INTO dbo.named (name) SELECT CONCAT('name ', id) FROM dbo.ledger;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'named', @role_name = NULL;
"""


def downstream(
    shop: Shop, spark: SparkResource, table: str, partition: str
) -> tuple[dg.ExecuteInProcessResult, list[int]]:
    """Materialize one partition of an asset that depends on a snapshot; and the keys that it was given."""
    partitions, upstream = range_partitions(8), key(table, "snapshot")
    loaded: list[int] = []

    @dg.asset(partitions_def=partitions, ins={"reads": dg.AssetIn(upstream, input_manager_key="envelope_io")})
    def report(reads: DataFrame) -> None:
        loaded.extend(row[0] for row in reads.select("value.after.*").collect())

    result = dg.materialize(
        [dg.AssetSpec(upstream, partitions_def=partitions), report],
        partition_key=partition,
        resources={"envelope_io": EnvelopeIOManager(lake=str(shop.folder / "lake"), spark=spark)},
        raise_on_error=False,
    )
    return result, sorted(loaded)


@pytest.mark.long
@pytest.mark.parametrize(("number", "rows"), [(1, range(1000)), (3, range(2000, 3000)), (8, range(7000, 8000))])
def test_partition_is_loaded_as_the_rows_of_its_range(
    shop: Shop, spark_resource: SparkResource, number: int, rows: range
) -> None:
    result, loaded = downstream(shop, spark_resource, "ledger", f"range_{number:02d}_of_08")
    assert result.success
    assert loaded == list(rows)


@pytest.mark.long
def test_partition_of_a_small_table_is_all_of_it_or_nothing(shop: Shop, spark_resource: SparkResource) -> None:
    assert downstream(shop, spark_resource, "customers", "range_01_of_08")[1] == list(range(1, 41))
    assert downstream(shop, spark_resource, "customers", "range_02_of_08")[1] == []


@pytest.mark.long
def test_partition_by_text_is_refused_because_only_the_server_knows_its_order(
    shop: Shop, spark_resource: SparkResource
) -> None:
    result, loaded = downstream(shop, spark_resource, "named", "range_03_of_08")
    failure = result.failure_data_for_node("report")
    assert failure is not None
    assert "Only the server can order" in str(failure)
    assert loaded == []


def test_one_range_is_its_eighth_of_the_rows(shop: Shop, instance: dg.DagsterInstance) -> None:
    assert again(shop, instance, 3, 3) == Counter(range(2000, 3000))
    assert shop.differences() == {}


@pytest.mark.long
def test_rows_written_later_belong_to_the_same_range(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.execute("INSERT INTO dbo.ledger (id, amount) VALUES (-5, 0)")
    shop.execute("DELETE FROM dbo.ledger WHERE id = 3")
    assert again(shop, instance, 1, 1) == Counter([-5, *(number for number in range(1000) if number != 3)])


@pytest.mark.long
def test_two_backfills_that_share_no_range_cover_each_row_once(shop: Shop, instance: dg.DagsterInstance) -> None:
    keys = again(shop, instance, 1, 2) + again(shop, instance, 3, 8)
    assert keys == Counter(row[0] for row in shop.execute("SELECT id FROM dbo.ledger"))


@pytest.mark.long
def test_a_backfill_neither_loses_nor_hides_changes(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.execute("UPDATE dbo.ledger SET amount = 77 WHERE id = 4500")
    again(shop, instance, 5, 5)
    assert shop.changes(instance).success
    updates = [event for event in shop.events("ledger") if event["value"] and event["value"]["op"] == "u"]
    assert [event["value"]["after"]["amount"] for event in updates] == [77]
    assert shop.differences() == {}


def of_partitions(instance: dg.DagsterInstance, table: str) -> dict[str, dict[str, object]]:
    """Metadata of the newest materialization of each partition of a snapshot."""
    records = instance.fetch_materializations(key(table, "snapshot"), limit=100).records
    found: dict[str, dict[str, object]] = {}
    for record in reversed(records):
        event = record.asset_materialization
        assert event is not None
        assert event.partition is not None
        found[event.partition] = {name: value.value for name, value in event.metadata.items()}
    return found


@pytest.mark.long
def test_each_partition_has_numbers_of_its_own(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.execute("DELETE FROM dbo.ledger WHERE id BETWEEN 1000 AND 1009")
    again(shop, instance, 1, 3)
    found = of_partitions(instance, "ledger")
    assert [found[f"range_{n:02d}_of_08"]["rows"] for n in (1, 2, 3, 8)] == [1000, 990, 1000, 1000]
    assert {found[f"range_{n:02d}_of_08"]["table_rows"] for n in (1, 2, 3)} == {2990}
    assert found["range_01_of_08"]["key_range"] == "id < 1000"
    assert found["range_02_of_08"]["key_range"] == "1000 ≤ id < 2000"
    assert found["range_08_of_08"]["key_range"] == "id ≥ 7000"
    assert found["range_01_of_08"]["read_together"] == "range_01_of_08 to range_03_of_08"
    assert all(facts["seconds"] for facts in found.values())


def test_rows_that_only_the_server_can_tell_apart_are_not_guessed(shop: Shop, instance: dg.DagsterInstance) -> None:
    found = of_partitions(instance, "named")
    assert {"rows", "read_together"} & found["range_02_of_08"].keys() == {"read_together"}
    assert found["range_02_of_08"]["table_rows"] == ROWS
    small = of_partitions(instance, "customers")
    assert (small["range_01_of_08"]["rows"], small["range_01_of_08"]["key_range"]) == (40, "all rows")
    assert small["range_02_of_08"]["rows"] == 0


@pytest.mark.parametrize(
    ("events", "texts"),
    [
        (EventSettings("shop"), ["ssn < 078-05", "078-05 ≤ ssn < 412-00", "ssn ≥ 412-00"]),
        (
            EventSettings("shop", column_rules=(ColumnRule("mask", (r"dbo\.people\.ssn",), 3),)),
            ["ssn < (masked)", "(masked) ≤ ssn < (masked)", "ssn ≥ (masked)"],
        ),
    ],
)
def test_bounds_of_a_key_that_a_rule_hides_are_not_shown(events: EventSettings, texts: list[str]) -> None:
    table, bounds = TableId("SalesDb", "dbo", "people"), [None, "078-05", "412-00", None]
    ranges = [KeyRange("ssn", *pair) for pair in pairwise(bounds)]
    found = dict(partition_facts([], shown_ranges(table, ranges, events), ["a", "b", "c"], range(3)))
    assert [found[name]["key_range"] for name in "abc"] == texts


def green(instance: dg.DagsterInstance, run_id: str, table: str) -> set[int]:
    """Numbers of the partitions that a run has materialized."""
    events = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    found = [entry.dagster_event for entry in events if entry.dagster_event]
    own = [event.partition for event in found if event.asset_key == key(table, "snapshot")]
    assert None not in own, "a snapshot has materializations of its partitions alone"
    return {int(str(partition)[6:8]) for partition in own}


@contextmanager
def small_rounds(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A round of one slice, a slice of one range."""
    with monkeypatch.context() as patched:
        patched.setattr(plan, "MIN_SLICE", 1)
        patched.setattr(rounds, "MIN_SLICE", 1)
        patched.setattr(rounds, "_ROUND_SLICES", 1)
        shop.write({"snapshot.max.threads": "1", "snapshot.max.threads.multiplier": "8"})
        try:
            yield
        finally:
            shop.write({})


@contextmanager
def at_round(number: int, act: Callable[[], object]) -> Iterator[None]:
    """Do something when so many rounds are committed."""
    counted = 0

    def note(step: str) -> None:
        nonlocal counted
        counted += step == "round-complete"
        if step == "round-complete" and counted == number:
            act()

    with listening(note):
        yield


def refuse() -> None:
    """The end of a run."""
    raise LakeError("The store refuses.")


def of_ranges(first: int, last: int) -> dict[str, str]:
    """Tags of a backfill of ranges."""
    return {
        "dagster/asset_partition_range_start": f"range_{first:02d}_of_08",
        "dagster/asset_partition_range_end": f"range_{last:02d}_of_08",
    }


@pytest.mark.long
def test_table_that_fails_half_way_has_no_green_partition(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [key(table, "snapshot") for table in ("ledger", "customers")]

    def alter() -> None:
        shop.execute("ALTER TABLE dbo.ledger ALTER COLUMN amount bigint NOT NULL")

    with small_rounds(shop, monkeypatch), at_round(2, alter):
        result = shop.snapshot(instance, due_only=False, assets=chosen)
    assert not result.success
    assert green(instance, result.run_id, "ledger") == set()
    assert green(instance, result.run_id, "customers") == set(range(1, 9))
    kind = dg.DagsterEventType.ASSET_OBSERVATION
    seen = [entry.dagster_event for entry in instance.all_logs(result.run_id, of_type=kind) if entry.dagster_event]
    facts = [one.asset_observation_data.asset_observation.metadata for one in seen if one.asset_key == chosen[0]]
    assert [one["table_rows_reads"].value for one in facts if "table_rows_reads" in one] == [1000]


@pytest.mark.long
def test_resumed_backfill_reports_its_own_ranges(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sensor's run, which finishes it, is of all ranges."""
    chosen = [key("ledger", "snapshot")]
    with small_rounds(shop, monkeypatch):
        with at_round(2, refuse):
            killed = shop.snapshot(instance, due_only=False, assets=chosen, tags=of_ranges(5, 8))
        assert not killed.success
        assert green(instance, killed.run_id, "ledger") == set()
        resumed = shop.snapshot(instance)
        assert resumed.success
    assert green(instance, resumed.run_id, "ledger") == {5, 6, 7, 8}


@pytest.mark.long
def test_run_that_resumes_and_then_fails_reports_what_it_has_resumed(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [key("ledger", "snapshot")]
    with small_rounds(shop, monkeypatch):
        with at_round(2, refuse):
            shop.snapshot(instance, due_only=False, assets=chosen, tags=of_ranges(6, 8))
        with at_round(4, refuse):
            failed = shop.snapshot(instance, due_only=False, assets=chosen, tags=of_ranges(1, 4))
        assert not failed.success
        assert green(instance, failed.run_id, "ledger") == {6, 7, 8}
        assert green(instance, shop.snapshot(instance).run_id, "ledger") == {1, 2, 3, 4}


@pytest.mark.long
def test_table_without_rows_is_read(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.execute("CREATE TABLE dbo.nothing (id int NOT NULL PRIMARY KEY)")
    shop.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'nothing', @role_name = NULL")
    result = shop.snapshot(instance)
    assert result.success
    assert green(instance, result.run_id, "nothing") == set(range(1, 9))
