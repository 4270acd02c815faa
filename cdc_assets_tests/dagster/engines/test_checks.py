"""Checks of a capture by a connector: what runs and sensors report of it, and what the job finds."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cdc_assets.assembly.engine import ask_unread
from cdc_assets.connectors.databases.probe import open_probe
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.engine.unread import Unread
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.overview.checks.check import Inspection
from cdc_assets.overview.checks.connector import CHECKS, COMPLETE, HEADROOM, ConnectorFacts
from cdc_assets.overview.engine import answers_of
from cdc_assets_tests.dagster.engines.deployment import Deployment
from cdc_assets_tests.unit.connectors.reader.trial import Trial


def told(facts: ConnectorFacts) -> list[tuple[bool, str]]:
    """What a run or the sensor reports of completeness."""
    found = [one.verdict for one in Inspection.of(CHECKS, facts).found if one.check is COMPLETE]
    return [(verdict.passed, verdict.text) for verdict in found]


@pytest.mark.long
def test_completeness_does_not_stay_good_while_changes_wait(shop: Deployment) -> None:
    assert shop.changes().success

    def after(seconds: float) -> list[tuple[bool, str]]:
        overview = ConnectorResource(properties=shop.properties()).overview()
        asked = answers_of(overview, lambda: shop.database.open(overview.config))
        return told(ConnectorFacts(overview, asked, datetime.now(UTC) + timedelta(seconds=seconds)))

    assert after(1) == [(True, "Every change up to the end of the log is in the lake.")]
    shop.database.end = 11
    assert after(1) == [], "it is another place every few seconds"
    [(passed, text)] = late = after(3600)
    assert not passed
    assert "may have waited for more than 60 s" in text
    shop.database.end = 12
    assert after(7200) == late, "no other record each time"
    shop.database.end = 10
    assert after(7200) == [(True, "Every change up to the end of the log is in the lake.")]


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """A reader that has read all."""
    found = Trial(tmp_path, files__topic="t")
    found.write("a.json", {"id": 1})
    found.run()
    return found


def facts_of(trial: Trial, unread: Unread | None = None) -> ConnectorFacts:
    overview = EngineOverview(trial.config)
    asked = unread or answers_of(overview, lambda: open_probe(trial.config), ask_unread(trial.config))
    return ConnectorFacts(overview, asked, datetime.now(UTC))


def test_of_a_reader_files_are_asked(trial: Trial) -> None:
    facts = facts_of(trial)
    assert HEADROOM.found(facts, None).passed
    assert told(facts) == [(True, "Everything that others wrote is in the lake.")]
    trial.write("b.json", {"id": 2})
    facts = facts_of(trial)
    assert told(facts) == []
    found = COMPLETE.found(facts, None)
    assert (found.passed, found.text) == (False, "1 files wait to be read; the next run reads them.")
    at = time.time() - 500
    os.utime(trial.events / "b.json", (at, at))
    [(passed, text)] = told(facts_of(trial))
    assert not passed
    assert "may have waited for more than 60 s" in text
    trial.run()
    assert told(facts_of(trial)) == [(True, "Everything that others wrote is in the lake.")]


def test_what_a_reader_does_not_see_fails(trial: Trial) -> None:
    facts = facts_of(trial, Unread(seen=1, absent=("orders",)))
    assert [passed for passed, _ in told(facts)] == [False]
    facts = facts_of(trial, Unread(missing="t partition 0: gone. Next: look", seen=1))
    assert told(facts) == [(False, "t partition 0: gone. Next: look")]
    found = HEADROOM.found(facts, None)
    assert (found.passed, found.is_error) == (False, True)
