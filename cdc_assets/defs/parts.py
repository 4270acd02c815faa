"""What a capture brings into a code location, put together part by part, whichever connector makes it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from cdc_assets.defs.catalog import Catalog
from cdc_assets.defs.checks.job import ViewOf, definitions_of, half_hourly_schedule
from cdc_assets.defs.jobs import own_job
from cdc_assets.overview.checks.check import Check


class CaptureDefinitions:
    """Assets, jobs and checks of one capture.

    Args:
        checks: entries of the registry that are for its kind.
        view: the capture, from its resource.
    """

    def __init__(self, catalog: Catalog, checks: Sequence[Check], view: ViewOf) -> None:
        self._catalog, self._registry, self._view = catalog, checks, view
        names = catalog.names
        self._half_hourly = definitions_of(checks, catalog, names.headroom, names.resource, view)
        self._checks: list[dg.AssetChecksDefinition] = list(self._half_hourly)
        self._assets: list[Any] = catalog.specs("source", deps=None)
        self._jobs: list[Any] = []

    def add(self, assets: dg.AssetsDefinition, job: str, about: str, *, with_checks: bool = True) -> None:
        """Add assets with the job that materializes them.

        Args:
            with_checks: whether the job evaluates the checks of their step.
        """
        self._assets.append(assets)
        chosen = dg.AssetSelection.assets(assets)
        own = chosen - dg.AssetSelection.checks(*self._half_hourly) if with_checks else chosen.without_checks()
        self.add_job(job, own, about)

    def add_job(self, job: str, selection: dg.AssetSelection, about: str) -> None:
        """Add a job over assets or checks."""
        self._jobs.append(own_job(job, selection, about))

    def add_checks(self, checks: dg.AssetChecksDefinition, job: str, about: str) -> None:
        """Add checks with the job that evaluates them."""
        self._checks.append(checks)
        self.add_job(job, dg.AssetSelection.checks(checks), about)

    def definitions(
        self,
        sensor: Callable[[Any, Sequence[Any]], dg.SensorDefinition],
        signal_job: dg.JobDefinition,
        about: str,
        resources: Mapping[str, Any],
    ) -> dg.Definitions:
        """All of it.

        Args:
            sensor: makes the sensor, which starts the jobs.
            about: what the half-hourly checks are about.
        """
        catalog, names = self._catalog, self._catalog.names
        job = own_job(names.headroom, dg.AssetSelection.checks(*self._half_hourly), about)
        return dg.Definitions(
            assets=self._assets,
            asset_checks=self._checks,
            jobs=[*self._jobs, job, signal_job],
            schedules=[half_hourly_schedule(catalog, job, self._registry, names.resource, self._view)],
            sensors=[sensor(catalog, self._jobs)],
            resources=dict(resources),
        )
