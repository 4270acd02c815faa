"""A broken configuration stops its own capture alone, and says so on its page; and no capture takes what is a project's own."""

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets.defs.build import build_definitions
from cdc_assets.defs.component import SqlServerCdcComponent
from cdc_assets.errors import ConfigurationError
from cdc_assets_tests.shop import Shop, key

PAGE = dg.AssetKey(["second", "windows"])


@pytest.fixture
def broken(shop: Shop, tmp_path: Path) -> Path:
    """The file of a second capture, with a wrong name in it."""
    file = tmp_path / "second.json"
    file.write_text(
        json.dumps(shop.properties | {"name": "second", "topic.prefix": "second", "tabel.include.list": "x"})
    )
    return file


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """Storage of its own."""
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def tick(definitions: dg.Definitions, instance: dg.DagsterInstance, name: str) -> object:
    """One evaluation of a sensor."""
    repository = definitions.get_repository_def()
    sensor = repository.get_sensor_def(name)
    with dg.build_sensor_context(instance=instance, repository_def=repository) as context:
        return sensor.evaluate_tick(context)


def page(instance: dg.DagsterInstance) -> dict[str, object]:
    """What the page of the second capture says."""
    event = instance.get_latest_materialization_event(PAGE)
    assert event is not None
    assert event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


def test_the_other_loads_and_the_broken_one_is_a_page_in_trouble(
    shop: Shop, broken: Path, instance: dg.DagsterInstance
) -> None:
    with shop.in_environment():
        definitions = build_definitions(shop.file, broken)
        dg.Definitions.validate_loadable(definitions)
        assert definitions.resolve_job_def("shop_follow")
        assert "tabel.include.list" in (definitions.resolve_asset_graph().get(PAGE).description or "")
        for _ in range(2):
            with pytest.raises(Exception, match=r"tabel\.include\.list"):
                tick(definitions, instance, "second_lsn")
        assert "in trouble" in str(page(instance)["health"])
        assert "tabel" in str(page(instance)["what_to_do"])
        assert len(instance.fetch_materializations(PAGE, limit=10).records) == 1, "each trouble is told once"
        broken.write_text(json.dumps(shop.properties | {"name": "second", "topic.prefix": "second"}))
        data = tick(definitions, instance, "second_lsn")
        assert "reload the code location" in str(data)


@pytest.mark.parametrize("content", ["{", '{"topic.prefix": "${env:NOT_SET}"}', '{"connector.class": 7}', "[]"])
def test_whatever_is_wrong_with_a_file_the_other_loads(shop: Shop, broken: Path, content: str) -> None:
    broken.write_text(content)
    with shop.in_environment():
        definitions = build_definitions(shop.file, broken)
    dg.Definitions.validate_loadable(definitions)
    batches = dg.AssetKey(["second", "batches"])
    assert {PAGE, batches} & definitions.resolve_asset_graph().get_all_asset_keys()


def test_assets_of_ones_own_that_read_the_broken_capture_still_load(shop: Shop, broken: Path) -> None:
    upstream = dg.AssetKey(["second", *key("orders", "changes").path[1:]])

    @dg.asset(ins={"orders": dg.AssetIn(upstream, input_manager_key="second_envelope_io")})
    def mine(orders: object) -> None: ...

    text = broken.read_text()
    with shop.in_environment():
        broken.write_text(text.replace("tabel", "column"))
        build_definitions(shop.file, broken)
        broken.write_text(text)
        definitions = dg.Definitions.merge(build_definitions(shop.file, broken), dg.Definitions([mine]))
    dg.Definitions.validate_loadable(definitions)


def test_a_component_that_is_broken_stops_no_other(shop: Shop, broken: Path) -> None:
    context = dg.ComponentTree.for_test().load_context
    with shop.in_environment():
        made = [SqlServerCdcComponent(config_file=str(file)).build_defs(context) for file in (shop.file, broken)]
        secret = shop.properties | {"name": "third", "topic.prefix": "third", "database.password": "in plain text"}
        made.append(SqlServerCdcComponent(properties=secret).build_defs(context))
    merged = dg.Definitions.merge(*made)
    dg.Definitions.validate_loadable(merged)
    assert merged.resolve_job_def("shop_follow")
    names = {sensor.name for sensor in merged.get_repository_def().sensor_defs}
    assert names == {"shop_lsn", "second_lsn", "third_lsn"}
    assert "third_sqlserver" not in (merged.resources or {}), "its properties hold a secret"


def test_nothing_but_broken_captures_is_an_error(shop: Shop, broken: Path) -> None:
    broken.write_text(broken.read_text().replace('"second"', '"new"'))
    with shop.in_environment(), pytest.raises(ConfigurationError, match="tabel"):
        build_definitions(broken)


def test_the_page_of_a_capture_that_was_loaded_before_does_not_stay_healthy(
    shop: Shop, broken: Path, instance: dg.DagsterInstance
) -> None:
    text = broken.read_text()
    with shop.in_environment():
        broken.write_text(text.replace("tabel", "column"))
        build_definitions(broken)
        broken.write_text(text)
        definitions = build_definitions(broken)
        with pytest.raises(Exception, match=r"tabel\.include\.list"):
            tick(definitions, instance, "second_lsn")
    assert "in trouble" in str(page(instance)["health"])


@pytest.mark.combinations
@pytest.mark.parametrize("content", ["{", '{"tabel.include.list": "x"}', '{"topic.prefix": "${env:NOT_SET}"}'])
@pytest.mark.parametrize("kind", ["", "cdc_assets.FileEvents"])
@pytest.mark.parametrize("is_alone", [True, False])
def test_the_page_of_a_capture_whose_file_says_no_more_what_it_is_does_not_stay_healthy(
    shop: Shop, tmp_path: Path, instance: dg.DagsterInstance, content: str, kind: str, is_alone: bool
) -> None:
    own = shop.properties | {"name": "the second", "topic.prefix": "second"}
    files = {"connector.class": kind, "files.path": str(tmp_path), "lake.path": str(tmp_path / "lake")}
    file = tmp_path / "file.json"
    file.write_text(json.dumps({"topic.prefix": "second", "name": "the second", **files} if kind else own))
    beside = () if is_alone else (shop.file,)
    with shop.in_environment():
        build_definitions(*beside, file)
        file.write_text(content)
        definitions = build_definitions(*beside, file)
        with pytest.raises(Exception, match=r"Expected|tabel|NOT_SET|expected"):
            tick(definitions, instance, f"the_second_{'log' if kind else 'lsn'}")
    event = instance.get_latest_materialization_event(dg.AssetKey(["second", "batches" if kind else "windows"]))
    assert event is not None
    assert event.asset_materialization is not None
    assert "in trouble" in str(event.asset_materialization.metadata["health"].value)


def test_a_broken_file_is_not_taken_for_the_capture_that_another_file_has_become(tmp_path: Path) -> None:
    """As after its content was moved; two with the same names would let nothing load."""
    file, moved = tmp_path / "file.json", tmp_path / "moved.json"
    files = {
        "connector.class": "cdc_assets.FileEvents",
        "files.path": str(tmp_path),
        "lake.path": str(tmp_path / "lake"),
    }
    file.write_text(json.dumps(files | {"topic.prefix": "second"}))
    build_definitions(file, state_dir=tmp_path / "state")
    moved.write_text(file.read_text())
    file.write_text("{")
    definitions = build_definitions(file, moved, state_dir=tmp_path / "state")
    assert {sensor.name for sensor in definitions.get_repository_def().sensor_defs} == {"second_log", "file_lsn"}


def test_jobs_of_ones_own_keep_the_executor_of_the_project(shop: Shop) -> None:
    @dg.asset
    def mine() -> None: ...

    own = dg.define_asset_job("own", dg.AssetSelection.assets(mine))
    for executor in (None, dg.multiprocess_executor):
        merged = dg.Definitions.merge(shop.definitions(), dg.Definitions([mine], jobs=[own], executor=executor))
        expected = executor or dg.multi_or_in_process_executor
        assert merged.resolve_job_def("own").executor_def is expected
        assert merged.resolve_job_def("shop_follow").executor_def is dg.in_process_executor
        assert merged.resolve_job_def("shop_signal").executor_def is dg.in_process_executor
