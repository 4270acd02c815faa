"""An entry of the registry of checks, and what is made of entries: specs, results, the job's definitions.

*Nothing is invented.* A check whose facts are not available does not pass: it warns that the answer is not known, with the reason.
That is reported of the capture as a whole; of a table Dagster keeps showing what was last known.

*Two ways to the same result.* Runs and sensors, which see the capture every few seconds, and the half-hourly job make results by the same
function of the same facts, so they never contradict each other. If the server does not answer, the run of the job fails.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import dagster as dg

from cdc_assets.overview import CaptureReport

Of = Literal["capture", "table", "mirror", "kafka"]
"""What a check is of: the page of a capture; the `changes` or the `current` of each table; the topics in Kafka."""

When = Literal["half-hourly", "seconds", "runs", "own job"]
"""Who evaluates a check. `half-hourly`: the job of checks, and every few seconds a run or the sensor. `seconds`: the same without the
job. `runs`: only runs that write its asset. `own job`: a job of its own."""

MadeOf = Literal["report", "answers", "run"]
"""What a result is made of: the report that is the page, the server's answers, or the work of a run."""

WHEN: dict[When, str] = {
    "half-hourly": "a run or the sensor every few seconds, a job every half hour",
    "seconds": "a run or the sensor every few seconds",
    "runs": "each run",
    "own job": "a job of its own",
}


class Facts(Protocol):
    """What was found out about a capture at one time."""

    @property
    def report(self) -> CaptureReport:
        """The capture's page."""

    @property
    def problem(self) -> str:
        """Why there is only the report; empty if the server has answered."""

    def keys(self, of: Of) -> Iterable[dg.AssetKey]:
        """The assets of which something is known."""


@dataclass(frozen=True, slots=True)
class ReportAlone:
    """What is known if the server does not answer.

    Args:
        problem: why.
        page: asset that carries the page.
        kafka: asset of the topics in Kafka, which the report covers, too.
    """

    report: CaptureReport
    problem: str
    page: dg.AssetKey
    kafka: dg.AssetKey | None = None

    def keys(self, of: Of) -> Iterable[dg.AssetKey]:
        """As `Facts.keys`."""
        found = {"capture": self.page, "kafka": self.kafka}.get(of)
        return () if found is None else (found,)


class Checked(Protocol):
    """The catalogue of a capture, as its checks see it."""

    def checked(self, of: Of) -> Sequence[dg.AssetKey]:
        """Assets that have such checks."""


Result = Callable[[Any, dg.AssetKey], dg.AssetCheckResult]
"""The result for an asset, from the facts of its kind of capture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check.

    Args:
        name: in Dagster; stored there, so it stays.
        about: what is true if it passes, for Dagster's pages.
        error: when it fails; empty if it only warns.
        warning: when it warns; empty if it never does.
        page: of the runbook.
        result: makes its result, unless runs or a job of its own do.
        blocking: whether nothing is built on an asset of which it fails.
        is_reported: whether runs and sensors report it; not if that would be another text every few seconds.
    """

    name: str
    of: Of
    about: str
    page: str
    when: When
    made_of: MadeOf
    error: str = ""
    warning: str = ""
    result: Result | None = None
    blocking: bool = False
    is_reported: Callable[[Any], bool] = lambda _: True

    def spec(self, key: dg.AssetKey) -> dg.AssetCheckSpec:
        """Its spec for an asset."""
        return dg.AssetCheckSpec(self.name, asset=key, blocking=self.blocking, description=self.about)

    def specs(self, catalog: Checked) -> list[dg.AssetCheckSpec]:
        """Its specs for a capture."""
        return [self.spec(key) for key in catalog.checked(self.of)]

    def found(self, facts: Any, key: dg.AssetKey) -> dg.AssetCheckResult:
        """Its result for an asset, with its name and the asset's key."""
        assert self.result is not None, self.name  # noqa: S101 - only these are read
        return self.named(self.result(facts, key), key)

    def named(self, result: dg.AssetCheckResult, key: dg.AssetKey) -> dg.AssetCheckResult:
        """A result with its name and the asset's key."""
        return dg.AssetCheckResult(
            passed=result.passed,
            asset_key=key,
            check_name=self.name,
            metadata=result.metadata,
            severity=result.severity,
            description=result.description,
        )

    def event(self, result: dg.AssetCheckResult, key: dg.AssetKey) -> dg.AssetCheckEvaluation:
        """A result as an event."""
        return dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=self.name,
            passed=result.passed,
            metadata=result.metadata,
            severity=result.severity,
            description=result.description,
            blocking=self.blocking,
        )


def not_known(reason: str) -> dg.AssetCheckResult:
    """That the answer is not known, and why."""
    warning = dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(passed=False, severity=warning, description=f"Not known: {reason}")


def reported(checks: Iterable[Check], facts: Facts) -> Iterator[dg.AssetCheckEvaluation]:
    """What a run or a sensor reports: each check whose facts are known, and that the others of the whole capture are not known."""
    for check in checks:
        if check.when not in ("half-hourly", "seconds"):
            continue
        if facts.problem and check.made_of != "report":
            yield from unanswered([check], facts.keys("capture"), facts.problem)
        elif check.is_reported(facts):
            yield from (check.event(check.found(facts, key), key) for key in facts.keys(check.of))


def unanswered(checks: Iterable[Check], keys: Iterable[dg.AssetKey], reason: str) -> Iterator[dg.AssetCheckEvaluation]:
    """Checks of the whole capture that cannot be answered now."""
    for key in keys:
        for check in checks:
            if check.of == "capture" and check.when == "half-hourly" and check.made_of != "report":
                yield check.event(not_known(reason), key)


def table_of(checks: Sequence[Check]) -> str:
    """The table of the documents."""
    rows = [(f"`{one.name}`", _OF[one.of], one.error or "–", one.warning or "–", WHEN[one.when]) for one in checks]
    head = ("Check", "Of", "Fails if", "Warns if", "Evaluated by")
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    lines.insert(1, "|---" * len(head) + "|")
    return "".join(f"{line}\n" for line in lines)


_OF: dict[Of, str] = {
    "capture": "the capture",
    "table": "each table's `changes`",
    "mirror": "each table's `current`",
    "kafka": "the topics in Kafka",
}
