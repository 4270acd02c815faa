"""What one database has left in flight holds topics in Kafka back no longer than it must, and what does is told."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cdc_assets.config.settings import SignalSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import listening
from cdc_assets.ledger.snapshot_state import SnapshotRun
from cdc_assets.ledger.state import CaptureState
from cdc_assets.overview import CaptureOverview, published_of
from cdc_assets.overview.formatting import describe_published
from cdc_assets_tests.contract.two import HERE, THERE, Two
from cdc_assets_tests.crashes import PowerCutError
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.publish.world import published
from cdc_assets_tests.unit.streaming.law import state_of

SIGNALS = TableId(THERE.database, "dbo", "signals")


@pytest.mark.long
def test_a_recorded_round_of_a_database_that_is_away_is_committed(two: Two) -> None:
    two.server.execute(
        "CREATE TABLE dbo.signals (id varchar(42), type varchar(32), data varchar(2048))", database="There"
    )
    two.server.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'signals', @role_name = NULL",
        database="There",
    )
    two.config = replace(two.config, signals=SignalSettings(collections=(SIGNALS,)))
    two.run("snapshot")
    data = json.dumps({"data-collections": [str(THERE)], "type": "incremental"})
    two.server.execute(f"INSERT INTO dbo.signals VALUES ('a', 'execute-snapshot', '{data}')", database="There")
    two.server.agent.drain()

    def recorded(name: str) -> None:
        signals = state_of(two.config).signals.get("There") if name == "signals-recorded" else None
        if signals is not None and signals.reads is not None:
            raise PowerCutError(name)

    with listening(recorded), pytest.raises(PowerCutError):
        two.run()
    broker = MemoryBroker()
    published(two.config, broker)
    state = state_of(two.config)
    assert "a round of an incremental snapshot that is not committed (There, " in state.held_by
    two.offline()
    two.insert(HERE)
    two.run()
    assert not state_of(two.config).held_by
    published(two.config, broker)
    assert len(broker.topics[f"shop.{HERE}"]) == len(two.keys(HERE))
    assert len(broker.topics[f"shop.{THERE}"]) == len(two.keys(THERE))


def test_what_holds_publishing_back_is_told(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    published(two.config, broker)
    two.insert(HERE)
    planned = SnapshotRun(state_of(two.config).next_window, "There", (), ())
    two.run()
    overview = CaptureOverview(two.config)
    held: CaptureState = replace(overview.state, snapshots={"There": planned})
    monkeypatch.setattr(overview, "state", held)
    found = published_of(overview, datetime.now(UTC), broker.newest)
    assert found is not None
    assert found.waiting == 1
    assert "for a snapshot of which nothing is committed yet (There, " in describe_published(found)
