"""Every step at which a crash is interesting is one at which the daemon's tests kill a run."""

from cdc_assets.core.steps import STEPS
from cdc_assets_tests.e2e import chains


def test_every_step_is_in_a_chain_of_killed_runs() -> None:
    killed = [*chains.WINDOW, *chains.IDLE, *chains.SNAPSHOT, *chains.INCREMENTAL, *chains.GAP]
    killed += [*chains.RETIREMENT, *chains.SINGLE, *chains.ENGINE, *chains.MIRROR, *chains.ADOPTION, *chains.PUBLISH]
    killed += (
        chains.MOMENT
        + chains.READING
        + chains.ABSENCE
        + chains.RETENTION
        + chains.COMPACTION
        + chains.REPLACING
        + chains.RESET
    )
    assert {step.partition(":")[0] for step in killed} == set(STEPS)
