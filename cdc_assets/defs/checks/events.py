"""Checks of the registry as Dagster's specs, results and events."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import dagster as dg

from cdc_assets.overview.checks.check import Check, Found, Of, Subject, Verdict


class Checked(Protocol):
    """The catalogue of a capture, as its checks see it."""

    def checked(self, of: Of) -> Mapping[dg.AssetKey, Subject]:
        """Assets that have such checks, and what they are of."""


def specs_of(check: Check, catalog: Checked) -> list[dg.AssetCheckSpec]:
    """The specs of a check for a capture."""
    return [
        dg.AssetCheckSpec(check.name, asset=key, blocking=check.blocking, description=check.about)
        for key in catalog.checked(check.of)
    ]


def result_of(check: Check, verdict: Verdict, key: dg.AssetKey) -> dg.AssetCheckResult:
    """A result of an asset's check, as the step gives it that was to evaluate it."""
    return dg.AssetCheckResult(check_name=check.name, asset_key=key, **_said(verdict))


def event_of(check: Check, verdict: Verdict, key: dg.AssetKey) -> dg.AssetCheckEvaluation:
    """A result as an event, which anybody may report."""
    return dg.AssetCheckEvaluation(check_name=check.name, asset_key=key, blocking=check.blocking, **_said(verdict))


def events_of(found: Iterable[Found], catalog: Checked) -> Iterator[dg.AssetCheckEvaluation]:
    """Results as events, of those that have an asset: a table may be newer than the loaded code location."""
    keys: dict[Of, Mapping[Subject, dg.AssetKey]] = {}
    for one in found:
        of = one.check.of
        if of not in keys:
            keys[of] = {subject: key for key, subject in catalog.checked(of).items()}
        if one.subject in keys[of]:
            yield event_of(one.check, one.verdict, keys[of][one.subject])


def _said(verdict: Verdict) -> dict[str, Any]:
    severity = dg.AssetCheckSeverity.ERROR if verdict.is_error else dg.AssetCheckSeverity.WARN
    metadata = {name: _shown(value) for name, value in verdict.facts.items()}
    return {"passed": verdict.passed, "severity": severity, "metadata": metadata, "description": verdict.text}


def _shown(value: Any) -> Any:
    """A list of rows as a table; a value of Dagster, which is a sequence, too, as it is."""
    is_list = isinstance(value, Sequence) and not isinstance(value, dg.MetadataValue)
    is_table = is_list and bool(value) and isinstance(value[0], Mapping)
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in value]) if is_table else value
