"""What runs that write to a capture have around their loop, whichever connector makes it: assets, turn, page, and events.

*Reported in any case.* What was committed is reported by the run that has committed it, also by one that fails: no later run does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import dagster as dg

from cdc_assets.defs.catalog import Catalog
from cdc_assets.defs.envelope_io import Committed
from cdc_assets.defs.failures import as_step
from cdc_assets.defs.io_managers import Writers
from cdc_assets.defs.turns import Turns
from cdc_assets.defs.view import CaptureView
from cdc_assets.defs.watch import LivePage
from cdc_assets.errors import CdcError

Results = Iterator[dg.MaterializeResult[Committed]]


def writing_assets(
    catalog: Catalog, op: str, specs: Iterable[dg.AssetSpec], **more: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """The multi-asset whose body writes to the capture: one at a time, by its IO managers.

    Args:
        op: its name.
        more: further arguments of `dg.multi_asset`.
    """
    names = catalog.names
    needed = {names.resource, names.envelope_io, names.history_io}
    return dg.multi_asset(
        name=op, specs=list(specs), can_subset=True, pool=names.pool, required_resource_keys=needed, **more
    )


class AssetEvents:
    """What a run reports of its assets: an asset has one output in a run, and any number of events."""

    def __init__(self, context: dg.AssetExecutionContext, writers: Writers) -> None:
        self._context, self._writers = context, writers
        self.selected = context.selected_asset_keys

    def event(self, key: dg.AssetKey, committed: Committed, *, observed: bool = False) -> None:
        """Report what was committed, at once.

        Args:
            observed: whether the asset is not materialized by it.
        """
        event = dg.AssetObservation if observed else dg.AssetMaterialization
        self._context.log_event(event(key, metadata=self._writers.account(committed)))

    def partitions(self, key: dg.AssetKey, committed: Committed, facts: Mapping[str, dict[str, Any]]) -> None:
        """Report partitions of an asset as materialized, each with facts of its own."""
        metadata = self._writers.account(committed) if facts else {}
        for name, own in facts.items():
            self._context.log_event(dg.AssetMaterialization(key, metadata=metadata | own, partition=name))

    def result(self, key: dg.AssetKey, committed: Committed, *, observed: bool = False) -> Results:
        """The output of a selected asset; of one that is not, or is newer than the loaded code location, an event."""
        if key in self.selected:
            yield dg.MaterializeResult(asset_key=key, value=committed)
        else:
            self.event(key, committed, observed=observed)


@contextmanager
def reported_in_any_case(report: Callable[[], None]) -> Iterator[None]:
    """If the block fails or is interrupted, report what was committed until then."""
    try:
        yield
    except BaseException:
        with suppress(CdcError):  # the lake may be the reason of the failure
            report()
        raise


@dataclass(frozen=True, slots=True)
class Writing:
    """What a run that has its turn writes with."""

    turns: Turns
    writers: Writers
    page: LivePage
    events: AssetEvents


@contextmanager
def writing(catalog: Catalog, context: dg.AssetExecutionContext, view: CaptureView) -> Iterator[Writing]:
    """The body of a step that writes: it waits for its turn.

    Raises:
        dagster.RetryRequested, dagster.Failure, Interrupted: see `as_step`.
    """
    turns = Turns(context, catalog.record)
    with as_step(context), turns.taken():
        writers = Writers(catalog.names, context)
        yield Writing(turns, writers, LivePage(view, context, writers.topics), AssetEvents(context, writers))
