"""The operator's page on schema changes, step by step as it is written, on the stand-in."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.history.drift import Drift
from cdc_assets.standin.control import StandIn
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of, run
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from resources.sqlserver_drift import drifts
from resources.sqlserver_source import SqlServerSource

PAGE = (Path(__file__).parents[2] / "docs" / "schema-changes.md").read_text()
STEPS = [re.sub(r"^ +", "", text, flags=re.MULTILINE) for text in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)]
INVOICES = TableId(DATABASE, "dbo", "invoices")


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def test_every_step_does_what_the_page_says(server: StandIn, tmp_path: Path) -> None:
    config = config_of(server.port, server.password, str(tmp_path))
    first, alter, second, last = STEPS

    def step(text: str) -> None:
        for statement in text.strip().splitlines():
            server.execute(statement, database=DATABASE)
        server.agent.drain()

    def look() -> Drift:
        with SqlServerSource(config.connection) as source:
            [drift] = drifts(source, config)
        return drift

    step(first)
    run(config, "snapshot")
    run(config, "stream")
    assert look().differences == ()

    step(alter)
    run(config, "stream")
    drift = look()
    assert [str(found) for found in drift.differences] == ["currency added (char(3))"]
    assert any("currency" in statement for statement in drift.statements)
    assert drift.remedy.removeprefix(f"EXEC [{DATABASE}].") == second.splitlines()[0].removeprefix("EXEC ")

    step(second)
    assert look().removable is None
    run(config, "stream")
    drift = look()
    assert (drift.differences, drift.removable) == ((), "dbo_invoices")
    assert drift.removal.removeprefix(f"EXEC [{DATABASE}].") == last.splitlines()[0].removeprefix("EXEC ")
    history = sorted(rows_of_topic(config, "shop.__schema_history"), key=lambda row: str(row["position"]))
    assert [row["type"] for row in history] == ["CREATE", "ALTER"]

    step(last)
    run(config, "stream")
    assert look().removable is None
    rows = [event.after for event in events_of(config, INVOICES)]
    assert [(row["id"], row.get("currency")) for row in rows if row] == [(1, None), (2, None), (3, "USD"), (4, "GBP")]
    assert "currency" not in (rows[1] or {})
