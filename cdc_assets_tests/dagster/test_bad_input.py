"""Whatever is wrong outside gives one clear failure that is not retried, and leaves lake and position as they were."""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from cdc_assets.core.steps import listening
from cdc_assets.defs.runs import PROGRESS_TAG
from cdc_assets.errors import PreflightError
from cdc_assets_tests.shop import Shop, key, open_shop

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, instance: dg.DagsterInstance) -> Iterator[Shop]:
    """A shop with its snapshot in the lake."""
    with open_shop(tmp_path_factory.mktemp("bad")) as found:
        assert found.snapshot(instance).success
        found.add_customers(2)
        yield found


@pytest.fixture(autouse=True)
def restored(shop: Shop) -> Iterator[None]:
    """The good configuration after each test."""
    yield
    shop.write({})


def failure(result: dg.ExecuteInProcessResult) -> str:
    """The one failure of a run: class and message."""
    assert not result.success
    (event,) = [found for found in result.all_node_events if found.event_type_value == "STEP_FAILURE"]
    assert not [found for found in result.all_node_events if found.event_type_value == "STEP_UP_FOR_RETRY"]
    data: Any = event.event_specific_data
    metadata = data.user_failure_data.metadata
    return f"{metadata['error'].value}: {data.user_failure_data.description}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"database.password": "wrong"}, "CredentialsError: .*refused the login"),
        ({"database.names": "master"}, "CdcDisabledError: .*sp_cdc_enable_db"),
        ({"table.include.list": "dbo.nothing", "table.exclude.list": ""}, "ConfigurationError: .*dbo.nothing"),
        ({"lake.path": "/proc/no/lake"}, "LakeError: .*/proc/no/lake"),
    ],
)
def test_one_clear_failure(shop: Shop, instance: dg.DagsterInstance, properties: dict[str, str], message: str) -> None:
    before, state = len(shop.events("customers")), shop.view().state
    shop.definitions()  # so that the tables are known while the configuration is wrong
    shop.write(properties)
    found = failure(shop.changes(instance))
    assert re.search(message, found), found
    assert "Next:" in found
    assert shop.server.password not in found
    shop.write({})
    assert len(shop.events("customers")) == before
    assert shop.view().state == state


@pytest.mark.long
def test_server_away_is_retryable(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.definitions()
    shop.write({"database.port": "1", "connection.validation.timeout.ms": "1000", "errors.max.retries": "0"})
    result = shop.changes(instance)
    assert not result.success
    retried = [found for found in result.all_node_events if found.event_type_value == "STEP_UP_FOR_RETRY"]
    assert len(retried) == 3


def test_step_that_is_asked_to_end_is_not_repeated(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.write({"stream.idle.timeout.ms": "60000"})
    threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    result = shop.follow(instance)
    assert not result.success
    assert time.monotonic() - started < 45
    assert not [found for found in result.all_node_events if found.event_type_value == "STEP_UP_FOR_RETRY"]


@pytest.mark.long
def test_a_run_that_fails_after_it_has_committed_windows_says_so(shop: Shop, instance: dg.DagsterInstance) -> None:
    windows = []

    def fail(step: str) -> None:
        if step == "window-complete":
            windows.append(step)
            shop.add_customers(1)
            if len(windows) == 2:
                raise PreflightError("The disk was taken away. Next: bring it back")

    assert shop.changes(instance).success
    shop.add_customers(1)
    with listening(fail):
        result = shop.follow(instance)
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert (result.success, run.tags.get(PROGRESS_TAG)) == (False, "1")
    assert shop.follow(instance).success


@pytest.mark.long
def test_changes_removed_before_they_were_read_fail_the_check(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.changes(instance)
    shop.add_customers(3)
    captured = shop.execute("SELECT sys.fn_cdc_get_max_lsn()")[0][0]
    shop.server.agent.cleanup("SalesDb", "dbo_customers", captured)
    checked = shop.run("shop_headroom", instance)
    found = checked.get_asset_check_evaluations()
    assert [check.passed for check in found if check.check_name == "retention_headroom"] == [False]
    assert checked.success, "it is run every half hour, and the check has failed already"
    evaluations = shop.changes(instance).get_asset_check_evaluations()
    verdicts = {found.asset_key: found for found in evaluations}
    lost = verdicts.pop(key("customers", "changes"))
    assert not lost.passed
    assert lost.blocking
    assert {"missing_after", "missing_until"} <= lost.metadata.keys()
    assert all(found.passed for found in verdicts.values())
    shop.execute("UPDATE dbo.products SET stock = stock + 1")
    again = shop.changes(instance)
    assert not again.success, "a table in trouble fails each run, also one that was told of it with its first window"
    failed = [found.asset_key for found in again.get_asset_check_evaluations() if not found.passed]
    assert failed == [key("customers", "changes")]
    assert shop.snapshot(instance, due_only=False, assets=[key("customers", "snapshot")]).success
    evaluations = shop.changes(instance).get_asset_check_evaluations()
    assert all(found.passed for found in evaluations)
    assert shop.differences() == {}
