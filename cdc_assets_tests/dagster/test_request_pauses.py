"""How soon the sensor starts another run for requests that the last one left."""

import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from cdc_assets.core.seldom import Seldom
from cdc_assets.defs import sensors
from cdc_assets.defs.names import Names
from cdc_assets.defs.runs import LEFT_AT_TAG
from cdc_assets.defs.sensors import SIGNAL_TAG
from cdc_assets.ledger.signal_state import SignalState


@pytest.mark.parametrize(
    ("found", "grows"), [(["SalesDb"], True), (["SalesDb", "in-process"], False), (["file"], False)]
)
def test_only_requests_that_no_run_could_finish_start_fewer_and_fewer_runs(found: list[str], *, grows: bool) -> None:
    nothing = dict.fromkeys(("new_tables", "failed", "readings_without_end", "unheeded"), list)
    work = SimpleNamespace(
        waiting=lambda *_, **__: [],
        unread_databases=dict,
        signalled=lambda _: [],
        pending_signals=lambda: found,
        **nothing,
    )
    state = SimpleNamespace(signals={"SalesDb": SignalState(), "Other": SignalState()})
    overview = SimpleNamespace(work=work, streams=True, hindrances={}, state=state)
    resource: Any = SimpleNamespace(overview=lambda **_: nullcontext(overview))
    catalog: Any = SimpleNamespace(names=Names("shop"), keys=lambda _: {})

    def ended(**tags: str) -> Any:
        run = SimpleNamespace(status=dg.DagsterRunStatus.SUCCESS, tags=tags, run_id="0" * 36)
        return SimpleNamespace(dagster_run=run, start_time=None, end_time=time.time() - 20)

    def asked(*records: Any) -> Any:
        return sensors._request(catalog, resource, records, None, Seldom(0.0), "")

    own = {SIGNAL_TAG: ", ".join(found)}
    assert asked(ended()).tags == own, "at once after a run for something else"
    for records in ([ended(**own)] * 5, [ended(), ended(**own)] * 5):
        assert isinstance(asked(*records), dg.SkipReason) == grows
    left = [ended(**own, **{LEFT_AT_TAG: "1"})] * 5
    assert asked(*left).tags == own, "their time was over, which says nothing of the requests"
