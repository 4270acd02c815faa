"""Two runs of the asset `kafka` at once, and one that is ended in the middle: each record once, and one run left."""

import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets_tests.dagster.conftest import NESTED_RESOURCES
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import read_committed
from cdc_assets_tests.shop import Shop, open_shop
from mssql_standin import sample

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900), pytest.mark.filterwarnings(NESTED_RESOURCES)]


TOPIC = f"shop.{sample.DATABASE}.dbo.customers"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as shop:
        yield shop


def sent(broker: Broker) -> int:
    return len(list(read_committed(broker, TOPIC)))


def test_of_two_runs_the_newer_fences_the_older_and_a_run_that_is_ended_leaves_the_rest_to_the_next(
    shop: Shop, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = {"bootstrap.servers": broker.servers, "kafka.enabled": "false", "kafka.transaction.rows": "2"}
    on = off | {"kafka.enabled": "true"}
    shop.write(off)
    commit, begun, goes_on = KafkaBroker.commit, threading.Event(), threading.Event()
    commits = 0

    def held(self: KafkaBroker, marker: str) -> Mapping[str, str]:
        """The third commit of all, in the middle of the older run, waits."""
        nonlocal commits
        commits += 1
        if commits == 3:
            begun.set()
            assert goes_on.wait(300)
        return commit(self, marker)

    with dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        shop.add_customers(5)
        assert shop.changes(instance).success
        shop.write(on)
        monkeypatch.setattr(KafkaBroker, "commit", held)
        ended: list[Any] = []
        older = threading.Thread(target=lambda: ended.append(shop.run("shop_publish", instance)))
        older.start()
        assert begun.wait(300)
        newer = shop.run("shop_publish", instance)
        goes_on.set()
        older.join(300)
        monkeypatch.setattr(KafkaBroker, "commit", commit)
        assert newer.success
        [found] = ended
        assert not found.success
        reason = next(event for event in found.all_events if event.is_step_failure).step_failure_data
        assert "Another producer has taken over" in str(reason.user_failure_data.description)
        assert sent(broker) == len(shop.events("customers"))

        def interrupted(self: KafkaBroker, marker: str) -> Mapping[str, str]:
            """Dagster ends a run with a signal."""
            nonlocal commits
            commits += 1
            if commits == 2:
                signal.raise_signal(signal.SIGTERM)
            return commit(self, marker)

        shop.write(off)
        shop.add_customers(5)
        assert shop.changes(instance).success
        shop.write(on)
        commits = 0
        monkeypatch.setattr(KafkaBroker, "commit", interrupted)
        before = sent(broker)
        assert not shop.run("shop_publish", instance).success
        monkeypatch.setattr(KafkaBroker, "commit", commit)
        assert before < sent(broker) < len(shop.events("customers"))
        assert shop.run("shop_publish", instance).success
        assert sent(broker) == len(shop.events("customers"))
