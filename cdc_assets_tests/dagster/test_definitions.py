"""What a code location shows: keys, dependencies, groups, kinds, descriptions; with the server there and away."""

import json
import os
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import get_args
from unittest.mock import patch

import dagster as dg
import pytest
from dagster._core.code_pointer import CodePointer
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.definitions.reconstruct import (
    ReconstructableRepository,
    initialize_repository_def_from_pointer,
    reconstruct_repository_def_from_pointer,
)
from dagster._core.definitions.repository_definition import RepositoryLoadData
from dagster._utils.test.definitions import scoped_reconstruction_metadata

from cdc_assets.config.load import configured_files
from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.defs import build, component, discovery
from cdc_assets.defs.build import build_definitions, capture_resources
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.changes import changes_assets
from cdc_assets.defs.component import ScaffoldOptions
from cdc_assets.defs.discovery import Discovery, discover, recall, remember
from cdc_assets.defs.io_managers import IOManagers
from cdc_assets.defs.keys import Role
from cdc_assets.defs.partitions import all_ranges, range_numbers, range_partitions
from cdc_assets.defs.snapshot import snapshot_assets
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.translator import CdcTranslator, word
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import ConfigurationError, ConnectionLostError
from cdc_assets.overview.checks.sqlserver import CHECKS
from cdc_assets_tests.shop import TABLES, Shop, key
from mssql_standin import sample

ORDERS = TableSchema(TableId("Db", "dbo", "orders"), 7, (Column("id", "int", 1, nullable=False),), ("id",))


@pytest.fixture(scope="module")
def graph(shop: Shop) -> AssetGraph:
    """Assets of the shop."""
    return shop.definitions().resolve_asset_graph()


def test_everything_can_be_loaded(shop: Shop) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dg.Definitions.validate_loadable(shop.definitions())


def test_keys_and_dependencies(graph: AssetGraph) -> None:
    system = {dg.AssetKey(["shop", name]) for name in ("windows", "schema_history", "schema_changes")}
    roles = ("source", "snapshot", "changes")
    assert graph.get_all_asset_keys() == {key(table, role) for table in TABLES for role in roles} | system
    for table in TABLES:
        assert graph.get(key(table, "changes")).parent_keys == {key(table, "source")}
        assert graph.get(key(table, "snapshot")).parent_keys == {key(table, "source")}
        assert not graph.get(key(table, "source")).is_materializable


def test_groups_kinds_owners_and_descriptions(graph: AssetGraph) -> None:
    groups = {node.group_name for node in graph.asset_nodes}
    assert groups == {"shop_SalesDb", "shop_system"}
    for node in graph.asset_nodes:
        assert node.description
        assert node.owners == ["team:cdc"]
        assert node.kinds
        assert node.tags["cdc/capture"] == "shop"


def test_graph_names_table_and_role_though_it_shows_the_last_key_part_only(graph: AssetGraph) -> None:
    labels = [node.key.path[-1] for node in graph.asset_nodes]
    assert len(set(labels)) == len(labels)
    assert {f"{table}.{role}" for table in TABLES for role in ("source", "snapshot", "changes")} < set(labels)
    assert not {kind for node in graph.asset_nodes for kind in node.kinds if "products" in kind}


@pytest.mark.parametrize("name", ["Order Details", "日本 [x]", "n" * 128])
def test_any_name_makes_a_spec_that_dagster_takes(name: str) -> None:
    schema = TableSchema(TableId(f"Ä {name}"[:60], "é", name), 7, ORDERS.columns, ("id",))
    for role in get_args(Role):
        assert CdcTranslator().spec("préfix", schema, role, "uri").kinds


def odd_tables(*names: str) -> list[TableSchema]:
    return [TableSchema(TableId("My-Db.2", "s ä", name), 7, ORDERS.columns, ("id",)) for name in names]


def test_any_name_makes_definitions_that_dagster_takes(shop: Shop) -> None:
    names = ["Order Details", "x.y", "a/b [c]", "Größe", "日本"]
    catalog = CaptureCatalog(shop.config(), odd_tables(*names), CdcTranslator())
    resources = capture_resources(catalog.names, shop.file, IOManagers(SparkResource()))
    assets = [*catalog.specs("source", deps=None), changes_assets(catalog), snapshot_assets(catalog)]
    definitions = dg.Definitions(assets=assets, resources=resources)
    keys = definitions.resolve_asset_graph().get_all_asset_keys()
    assert dg.AssetKey(["shop", "My-Db.2", "s__", "a_b__c_.changes"]) in keys
    assert len(catalog.keys("changes")) == len(names)


@pytest.mark.parametrize("other", ["x y", "x.y", "x-y"])
def test_names_that_dagster_cannot_tell_apart_are_refused(shop: Shop, other: str) -> None:
    with pytest.raises(ConfigurationError, match="CdcTranslator"):
        CaptureCatalog(shop.config(), odd_tables("x_y", other), CdcTranslator())


def test_tables_show_their_columns_and_where_they_lie(shop: Shop, graph: AssetGraph) -> None:
    metadata = graph.get(key("products", "source")).metadata
    columns = metadata["dagster/column_schema"].columns
    types = {column.name: column.type for column in columns}
    assert types["price"] == "decimal(10, 2)"
    assert types["title"] == "nvarchar(100)"
    assert types["picture"] == "varbinary(max)"
    assert types["available_from"] == "time(3)"
    metadata = graph.get(key("products", "changes")).metadata
    (code,) = metadata["dagster/code_references"].code_references
    assert code.file_path == str(shop.file)
    uri = metadata["dagster/uri"]
    assert getattr(uri, "value", uri) == f"{shop.folder}/lake/shop.SalesDb.dbo.products"


def test_snapshots_are_partitioned_by_range_and_changes_are_not(graph: AssetGraph) -> None:
    partitions = graph.get(key("orders", "snapshot")).partitions_def
    assert partitions is not None
    assert partitions.get_partition_keys()[0] == "range_01_of_08"
    assert graph.get(key("orders", "changes")).partitions_def is None


def test_sensors_checks_jobs_and_schedules_are_described(shop: Shop) -> None:
    definitions = shop.definitions()
    repository = definitions.get_repository_def()
    (sensor,) = repository.sensor_defs
    assert sensor.name == "shop_lsn"
    assert sensor.minimum_interval_seconds == 1
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    described = [sensor, *repository.schedule_defs, *(repository.get_job(name) for name in JOBS)]
    assert all(thing.description for thing in described)
    checks = definitions.resolve_asset_graph().asset_check_keys
    of_capture, of_tables = ({one.name for one in CHECKS if one.of == of} for of in ("capture", "table"))
    assert {check.name for check in checks} == of_capture | of_tables
    assert len(checks) == len(of_tables) * len(TABLES) + len(of_capture)


JOBS = ("shop_changes", "shop_follow", "shop_snapshot", "shop_headroom")


def test_all_runs_are_in_one_process_and_share_one_pool(shop: Shop) -> None:
    definitions = shop.definitions()
    for name in JOBS:
        assert definitions.resolve_job_def(name).executor_def is dg.in_process_executor
    pools = {node.definition.pool for name in JOBS[:3] for node in definitions.resolve_job_def(name).nodes}  # type: ignore[union-attr]
    assert pools == {"cdc_shop"}


def test_no_secret_is_in_what_the_pages_show(shop: Shop) -> None:
    repository = shop.definitions().get_repository_def()
    resources = repository.get_top_level_resources()
    assert {"cdc_shop", "shop_envelope_io", "shop_spark"} <= resources.keys()
    shown = "".join(repr(vars(resource)) + repr(resource.config_schema.as_field()) for resource in resources.values())
    assert str(shop.file) in shown
    assert shop.server.password not in shown


def test_two_captures_are_merged_with_each_other_and_with_a_spark_of_ones_own(shop: Shop, tmp_path: Path) -> None:
    second = tmp_path / "second.json"
    second.write_text(json.dumps(shop.properties | {"name": "second", "topic.prefix": "second"}))
    with shop.in_environment():
        captures = [build_definitions(str(file), state_dir=tmp_path) for file in (shop.file, second)]
    own = dg.Definitions(resources={"spark": "mine"})
    merged = dg.Definitions.merge(*captures, own)
    assert {"spark", "shop_spark", "second_spark"} <= (merged.resources or {}).keys()
    for capture in ("shop", "second"):
        assert merged.resolve_job_def(f"{capture}_changes")


def test_server_away_shows_the_tables_known_last(shop: Shop) -> None:
    shop.definitions()
    shop.write({"database.port": "1", "connection.validation.timeout.ms": "1000"})
    try:
        graph = shop.definitions().resolve_asset_graph()
        assert key("orders", "changes") in graph.get_all_asset_keys()
        assert "could not be read from the server" in (graph.get(dg.AssetKey(["shop", "windows"])).description or "")
    finally:
        shop.write({})


def test_server_away_and_nothing_known_still_loads(shop: Shop, tmp_path: Path) -> None:
    shop.write({"database.port": "1", "connection.validation.timeout.ms": "1000"})
    try:
        with patch.dict(os.environ, shop.environment | {"CDC_STATE_DIR": str(tmp_path)}):
            definitions = build_definitions(shop.file)
        dg.Definitions.validate_loadable(definitions)
        assert len(definitions.resolve_asset_graph().get_all_asset_keys()) == 3
    finally:
        shop.write({})


def test_wrong_configuration_is_one_clear_error(shop: Shop, tmp_path: Path) -> None:
    shop.write({"tabel.include.list": "dbo.orders"})
    try:
        with (
            shop.in_environment(),
            pytest.raises(ConfigurationError, match=r"tabel\.include\.list.*table\.include\.list"),
        ):
            build_definitions(shop.file, state_dir=tmp_path)  # where nothing was loaded before
    finally:
        shop.write({})


def test_several_captures_live_side_by_side(shop: Shop) -> None:
    other = shop.file.with_name("second.json")
    other.write_text(shop.file.read_text().replace('"shop"', '"second"'))
    try:
        with shop.in_environment():
            files = [shop.file, other]
            definitions = build_definitions(*files)
        dg.Definitions.validate_loadable(definitions)
        prefixes = {found.path[0] for found in definitions.resolve_asset_graph().get_all_asset_keys()}
        assert prefixes == {"shop", "second"}
    finally:
        other.unlink()


def test_users_name_assets_their_way(shop: Shop) -> None:
    class Mine(CdcTranslator):
        def asset_key(self, prefix: str, table: TableId, role: str) -> dg.AssetKey:  # type: ignore[override]
            return dg.AssetKey(["raw", table.table, role])

    with shop.in_environment():
        definitions = build_definitions(shop.file, translator=Mine())
    assert dg.AssetKey(["raw", "orders", "changes"]) in definitions.resolve_asset_graph().get_all_asset_keys()


# ---- pieces ----------------------------------------------------------------------------------------------------


@pytest.fixture
def remembered(tmp_path: Path) -> Path:
    """A file for discovered tables."""
    return tmp_path / "deep" / "tables.json"


def test_discovery_is_remembered_and_recalled(remembered: Path) -> None:
    assert discover(lambda: [ORDERS], remembered).tables == (ORDERS,)

    def away() -> list[TableSchema]:
        raise ConnectionLostError("no answer")

    found = discover(away, remembered)
    assert found.tables == (ORDERS,)
    assert "ConnectionLostError: no answer" in found.problem


def test_run_takes_the_answer_of_its_code_location_wherever_it_runs(remembered: Path) -> None:
    with DefinitionsLoadContext.scoped(DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION)) as load:
        discover(lambda: [ORDERS], remembered)
        left = load.get_pending_reconstruction_metadata()

    def away() -> list[TableSchema]:
        raise ConnectionLostError("no answer")

    with scoped_reconstruction_metadata(left):
        assert discover(away, remembered) == Discovery((ORDERS,))
        remember(remembered, [])
        assert discover(away, remembered) == Discovery((ORDERS,)), "another load has come"
        assert recall(remembered) == (), "whose answer stays"
        remembered.unlink()
        assert discover(away, remembered) == Discovery((ORDERS,)), "in a container without that folder"
    with scoped_reconstruction_metadata({}):
        assert "no answer" in discover(away, remembered).problem


def test_code_servers_of_the_daemon_ask_seldom_and_others_at_each_load(
    remembered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def ask() -> list[TableSchema]:
        asked.append(True)
        return [ORDERS]

    def load(*, of_daemon: bool) -> int:
        monkeypatch.setattr(discovery, "is_of_daemon", lambda: of_daemon)
        with DefinitionsLoadContext.scoped(DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION)) as context:
            assert discover(ask, remembered) == Discovery((ORDERS,))
            assert context.get_pending_reconstruction_metadata(), "for the runs"
        return len(asked)

    assert [load(of_daemon=True) for _ in range(3)] == [1, 1, 1]
    assert [load(of_daemon=False) for _ in range(2)] == [2, 3], "who reloads wants to see new tables"
    for ago_s in (601.0, -60.0):
        at = time.time() - ago_s
        os.utime(remembered, (at, at))
        before = len(asked)
        assert [load(of_daemon=True) for _ in range(2)] == [before + 1, before + 1], "the same answer, given anew"
    remember(remembered, [])
    assert load(of_daemon=True) == 6, "none known: the first table is not waited for"


def test_code_location_of_a_run_is_built_without_the_server(shop: Shop) -> None:
    pointer = CodePointer.from_module("resources.definitions", "defs", working_directory=None)
    with shop.in_environment():
        with DefinitionsLoadContext.scoped(DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION)):
            loaded = initialize_repository_def_from_pointer(pointer)
        with (
            patch("cdc_assets.defs.sqlserver.SqlServerCdcResource.tables", side_effect=AssertionError),
            DefinitionsLoadContext.scoped(DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION)),
        ):
            built = reconstruct_repository_def_from_pointer(pointer, loaded.repository_load_data)
    assert built.asset_graph.get_all_asset_keys() == loaded.asset_graph.get_all_asset_keys()
    assert key("customers", "changes") in built.asset_graph.get_all_asset_keys()


def test_run_builds_its_definitions_once_though_dagster_loads_them_twice(shop: Shop) -> None:
    pointer = CodePointer.from_module("resources.definitions", "defs", working_directory=None)
    with (
        shop.in_environment(),
        DefinitionsLoadContext.scoped(DefinitionsLoadContext(DefinitionsLoadType.INITIALIZATION)),
        patch.object(build, "_capture_definitions", wraps=build._capture_definitions) as built,
    ):
        load = initialize_repository_def_from_pointer(pointer).repository_load_data
        job = ReconstructableRepository(pointer, repository_load_data=load).get_reconstructable_job("shop_changes")
        job.get_definition()
        once = built.call_count
        job.get_subset(asset_selection={key("customers", "changes")}).get_definition()
        assert built.call_count == once
        reconstruct_repository_def_from_pointer(pointer, RepositoryLoadData(reconstruction_metadata={"of": "another"}))
        assert built.call_count > once, "another load may have found other tables"


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"table": 3}]'])
def test_damaged_memory_counts_as_none(remembered: Path, text: str) -> None:
    remember(remembered, [ORDERS])
    remembered.write_text(text)
    assert recall(remembered) == ()


def test_place_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert discover(lambda: [ORDERS], tmp_path / "file" / "tables.json").tables == (ORDERS,)


def test_no_configuration_is_a_clear_error(tmp_path: Path) -> None:
    with (
        patch.dict(os.environ, {"CDC_CONFIG": str(tmp_path)}),
        pytest.raises(ConfigurationError, match=r"CDC_CONFIG"),
    ):
        configured_files(Path("resources/captures"))


def test_range_numbers_follow_the_keys() -> None:
    partitions = range_partitions(3)
    assert range_numbers(partitions, ["range_03_of_03", "range_01_of_03"]) == (0, 2)
    assert set(all_ranges(partitions).values()) == {"range_01_of_03", "range_03_of_03"}


def test_words_and_topics() -> None:
    assert word("shop.eu-1 [x]") == "shop_eu_1_x_"
    assert topic_name(ORDERS.table, EventSettings("p")) == "p.Db.dbo.orders"


def test_signal_table_has_changes_but_no_rows_to_read(shop: Shop) -> None:
    shop.write({"signal.data.collection": f"{sample.DATABASE}.dbo.{sample.SIGNAL_TABLE}"})
    keys = shop.definitions().resolve_asset_graph().get_all_asset_keys()
    assert key(sample.SIGNAL_TABLE, "changes") in keys
    assert key(sample.SIGNAL_TABLE, "snapshot") not in keys


def test_changes_link_to_the_page_of_their_capture(shop: Shop) -> None:
    specs = {spec.key: spec for spec in shop.definitions().resolve_all_asset_specs()}
    link = specs[key("customers", "changes")].metadata["cdc/capture_page"]
    assert link.asset_key in specs
    assert link.asset_key == dg.AssetKey(["shop", "windows"])


def scaffolded(name: str, **options: str) -> dict[str, str]:
    """Properties of a component that is written into the folder of that name."""
    root = Path("/my/project")
    request = SimpleNamespace(params=ScaffoldOptions(**options), project_root=root, target_path=root / "my/defs" / name)
    with patch.object(component, "scaffold_component") as scaffold:
        component.SqlServerCdcScaffolder().scaffold(request)  # type: ignore[arg-type]
    properties: dict[str, str] = scaffold.call_args.args[1]["properties"]
    return properties


@pytest.mark.parametrize(
    ("lake", "written"),
    [("var/lake", "/my/project/var/lake"), ("/data/lake", "/data/lake"), ("s3://bucket/lake", "s3://bucket/lake")],
)
def test_scaffold_writes_a_lake_that_is_one_folder_from_everywhere(lake: str, written: str) -> None:
    assert scaffolded("sales", lake=lake)["lake.path"] == written


def test_scaffolded_captures_have_prefixes_of_their_own() -> None:
    assert [scaffolded(name)["topic.prefix"] for name in ("sales", "erp")] == ["sales", "erp"]
    assert scaffolded("sales", prefix="shop")["topic.prefix"] == "shop"


def test_kafka_depends_on_the_topics_that_it_publishes(shop: Shop) -> None:
    shop.write({"kafka.enabled": "true", "bootstrap.servers": "127.0.0.1:1"})
    graph = shop.definitions().resolve_asset_graph()
    kafka = graph.get(dg.AssetKey(["shop", "kafka"]))
    topics = {key(table, role) for table in TABLES for role in ("snapshot", "changes")}
    assert kafka.parent_keys == {dg.AssetKey(["shop", "windows"]), *topics}
    shop.write({})
