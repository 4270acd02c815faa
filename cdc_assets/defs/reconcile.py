"""The check `matches_source` of each `current` asset: the mirror equals the table on the server.

The job `<capture>_reconcile` runs it, for all mirrors or those that are selected. It claims nothing and uses no pool, so it runs
beside the stream. `mirror.reconcile.ranges` limits what one run compares: with it, a schedule of this job goes through
large tables a few key ranges a day. Give it a schedule of your own: how often a table may be read is for its owner to say.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.checks.events import result_of, specs_of
from cdc_assets.defs.failures import as_failures
from cdc_assets.defs.row_facts import ran_on_facts
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.overview.checks.check import Verdict, not_known
from cdc_assets.overview.checks.sqlserver import MATCHES
from cdc_assets.reconcile.progress import Pass
from cdc_assets.reconcile.run import Wishes


class ReconcileConfig(dg.Config):
    """How mirrors are compared with the server."""

    ranges: int | None = Field(
        default=None, description="Key ranges of each table to compare; `mirror.reconcile.ranges` if none is given."
    )
    repair: bool = Field(
        default=False, description="Request READ events of differing rows from the stream; needs the signal table."
    )
    anew: bool = Field(default=False, description="Start with the first key range instead of continuing.")


def matches_check(catalog: CaptureCatalog) -> dg.AssetChecksDefinition:
    """Whether each mirror equals the table on the server."""
    names = catalog.names
    tables = catalog.keys("current")

    @dg.multi_asset_check(
        name=names.reconcile_op,
        specs=specs_of(MATCHES, catalog),
        can_subset=True,
        required_resource_keys={names.resource},
    )
    def check(context: dg.AssetCheckExecutionContext, config: ReconcileConfig) -> Iterator[dg.AssetCheckResult]:
        resource: CaptureResource = getattr(context.resources, names.resource)
        ranges = config.ranges if config.ranges is not None else resource.config().mirror.reconcile_ranges
        wishes = Wishes(ranges or None, config.repair, config.anew)
        with as_failures(), resource.reconciler() as (mirrors, reconciler):
            selected = sorted({chosen.asset_key for chosen in context.selected_asset_check_keys})
            captured = set(mirrors.captured([tables[key] for key in selected]))
            for key in selected:
                if tables[key] not in captured:
                    nothing = not_known("nothing of the table was captured yet, so there is no mirror.")
                    yield result_of(MATCHES, nothing, key)
                    continue
                before = reconciler.account.of("reconcile")
                try:
                    found = reconciler.reconcile(tables[key], wishes)
                except CdcError as error:
                    yield result_of(MATCHES, not_known(describe_error(error)), key)
                    continue
                ran_on = ran_on_facts(reconciler.account.of("reconcile").since(before))
                yield result_of(
                    MATCHES,
                    Verdict(not (found.differing or found.left), found.summary, facts=facts(found) | ran_on),
                    key,
                )

    return check


def facts(found: Pass) -> dict[str, Any]:
    """Metadata of a comparison."""
    about: dict[str, Any] = {
        "lsn": found.lsn,
        "rows": found.rows,
        "rows_of_the_mirror": found.mirrored,
        "differing": found.differing,
        "key_ranges": f"{found.done} of {len(found.ranges)}",
        "begun": found.began,
    }
    if found.first:
        about["differences"] = [
            {"kind": one.kind, **{side: _text(getattr(one, side)) for side in ("key", "server", "mirror")}}
            for one in found.first
        ]
    return about


def _text(values: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
