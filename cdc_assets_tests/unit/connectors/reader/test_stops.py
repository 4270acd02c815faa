"""What is not read on is told by everybody who looks, until it goes on."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cdc_assets.connectors.engine import ledger
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.errors import LakeError
from cdc_assets.overview.engine import report_of_engine
from cdc_assets.overview.report import CaptureReport
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.connectors.reader.trial import Trial


def report(trial: Trial) -> CaptureReport:
    return report_of_engine(EngineOverview(trial.config), None, datetime.now(UTC))


def ids(trial: Trial, topic: str) -> list[int]:
    return [event["value"]["id"] for event in trial.held(topic)]


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """A file with a line that cannot be read, and another file."""
    found = Trial(tmp_path)
    found.write("t+0+0.json", {"topic": "t", "value": {"id": 1}}, "{broken", {"topic": "t", "value": {"id": 2}})
    found.write("u+0+0.json", {"topic": "u", "value": {"id": 1}})
    return found


@pytest.mark.parametrize("step", ["files-written", "batch-planned", "table-committed", "batch-complete", ""])
def test_a_file_is_told_until_it_goes_on(trial: Trial, step: str) -> None:
    with suppress(PowerCutError, LakeError), cut_at(step):
        trial.run()
    with pytest.raises(LakeError, match=r"t\+0\+0\.json line 2"):
        trial.run()
    for _ in range(2):
        seen = report(trial)
        assert seen.health == "in trouble"
        assert len(seen.troubles) == 1
        assert "t+0+0.json line 2: it is no JSON" in seen.headline
        assert not EngineOverview(trial.config).state.quiet
        trial.write("u+0+0.json", {"topic": "u", "value": {"id": 2}})  # another one goes on meanwhile
        with pytest.raises(LakeError):
            trial.run()
    file = trial.events / "t+0+0.json"
    file.write_text(file.read_text().replace("{broken", '{"topic": "t", "value": {"id": 5}}'))
    with suppress(PowerCutError), cut_at(step):
        trial.run()
    trial.run()
    assert report(trial).health == "healthy"
    assert ids(trial, "t") == [1, 5, 2]
    assert ids(trial, "u") == [1, 2, 2]


def test_it_stays_told_when_the_record_is_folded(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LakeError):
        trial.run()
    monkeypatch.setattr(ledger, "_CHECKPOINT_EVERY", 1)
    trial.write("u+0+0.json", {"topic": "u", "value": {"id": 2}})
    with pytest.raises(LakeError):
        trial.run()
    assert set(EngineOverview(trial.config).state.stopped) == {"t+0+0.json"}


def test_the_reason_that_counts_is_the_newest(trial: Trial) -> None:
    with pytest.raises(LakeError):
        trial.run()
    (trial.events / "t+0+0.json").unlink()
    with pytest.raises(LakeError, match="the file is gone"):
        trial.run()
    assert "the file is gone" in report(trial).headline
