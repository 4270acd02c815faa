"""The code location of the tests in this folder."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets.assembly import engine
from cdc_assets.connectors.engine.feed import Habits
from cdc_assets.defs.engines import resource
from cdc_assets_tests.dagster.engines.deployment import EVENTS, Connector, Deployment


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    with dg.DagsterInstance.ephemeral() as instance:
        found = Deployment(tmp_path, instance, Connector(EVENTS))
        monkeypatch.setattr(resource, "open_probe", lambda config: found.database.open(config))
        monkeypatch.setattr(engine, "start_connector", lambda *given: found.connector.launch(*given))
        monkeypatch.setattr(engine, "EngineRun", partial(engine.EngineRun, habits=Habits(warm_up_s=0.01)))
        yield found
