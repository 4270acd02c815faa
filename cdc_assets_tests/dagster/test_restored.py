"""A database that was restored to an earlier moment, as Dagster and the command line show it."""

from collections.abc import Iterator

import dagster as dg
import pytest
from typer.testing import CliRunner, Result

from cdc_assets.cli.main import app
from cdc_assets_tests.shop import Shop, key, open_shop, tick

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]


@pytest.fixture
def restored(tmp_path_factory: pytest.TempPathFactory, instance: dg.DagsterInstance) -> Iterator[Shop]:
    """A shop that has lost changes which are in the lake."""
    with open_shop(tmp_path_factory.mktemp("restored")) as found:
        assert found.snapshot(instance).success
        assert "history must be" not in command(found, "doctor").output
        backup = found.server.backup()
        found.add_customers(2)
        assert found.changes(instance).success
        found.server.restore(backup)
        yield found


def command(shop: Shop, name: str) -> Result:
    """What the command line says."""
    return CliRunner().invoke(app, [name, "-c", str(shop.file)], env={"COLUMNS": "220", **shop.environment})


@pytest.mark.long
def test_sensor_starts_one_run_whose_checks_tell_it(restored: Shop, instance: dg.DagsterInstance) -> None:
    doctor = command(restored, "doctor")
    assert doctor.exit_code == 1
    assert "history must be the one that was read" in doctor.output
    assert "topic.prefix" in doctor.output
    events = len(restored.events("customers"))
    assert tick(restored, instance).job_name == "shop_follow"
    result = restored.changes(instance)
    verdicts = {found.asset_key: found for found in result.get_asset_check_evaluations()}
    lost = verdicts[key("customers", "changes")]
    assert not lost.passed
    assert "restored to an earlier moment" in (lost.description or "")
    assert not any(found.passed for found in verdicts.values())
    assert tick(restored, instance).skip_message == "Nothing new."
    assert not restored.snapshot(instance, due_only=False).success
    assert len(restored.events("customers")) == events
    status = command(restored, "status")
    assert "restored to an earlier moment" in status.output
    assert command(restored, "doctor").exit_code == 1


@pytest.mark.long
def test_snapshots_that_people_ask_for_begin_a_new_history(restored: Shop, instance: dg.DagsterInstance) -> None:
    restored.changes(instance)
    lost = len(restored.events("customers"))
    restored.add_customers(5)
    assert tick(restored, instance).skip_message == "Nothing new."
    assert not restored.snapshot(instance).success, "only what is due: nobody has asked for it"
    assert len(restored.events("customers")) == lost
    assert restored.snapshot(instance, due_only=False).success
    restored.add_customers(1)
    result = restored.changes(instance)
    verdicts = {found.asset_key: found for found in result.get_asset_check_evaluations()}
    assert all(found.passed for found in verdicts.values())
    (interval,) = verdicts[key("customers", "changes")].metadata["lost_before"].value
    last = restored.events("customers")[lost - 1]["position"][:22]
    assert interval.startswith("after ")
    assert interval.rpartition(" ")[2] >= last
    operations = [event["value"]["op"] for event in restored.events("customers")[lost:]]
    assert operations == ["r"] * 45 + ["c"]
    assert command(restored, "doctor").exit_code == 0
