"""An entry of the registry of checks, and what is found by entries.

*Nothing is invented.* A check whose facts are not available does not pass: it warns that the answer is not known, with the reason.
That is said of the capture as a whole; of a table nothing is said then.

*One function for all.* Runs, sensors, the half-hourly job and `status` find results by the same function of the same facts, so they never
contradict each other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from cdc_assets.core.identifiers import TableId
from cdc_assets.overview.report import CaptureReport

Of = Literal["capture", "table", "mirror", "kafka"]
"""What a check is of: the page of a capture; the `changes` or the `current` of each table; the topics in Kafka."""

Subject = TableId | None
"""What a result is of: a table, or the capture or Kafka as a whole."""

When = Literal["half-hourly", "seconds", "runs", "own job"]
"""Who evaluates a check. `half-hourly`: the job of checks, and every few seconds a run or the sensor. `seconds`: the same without the
job. `runs`: only runs that write its asset. `own job`: a job of its own."""

MadeOf = Literal["report", "answers", "run"]
"""What a result is made of: the report that is the page, the server's answers, or the work of a run."""

WHEN: dict[When, str] = {
    "half-hourly": "run, sensor, half-hourly job",
    "seconds": "run, sensor",
    "runs": "each run",
    "own job": "a job of its own",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check says of one thing.

    Args:
        is_error: whether somebody has to act if it does not pass; else it warns.
        facts: values and texts that it was made of; of a table, a list of rows.
    """

    passed: bool
    text: str
    is_error: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def word(self) -> Literal["failed", "warned", "passed"]:
        """How it ended."""
        return "passed" if self.passed else "failed" if self.is_error else "warned"


class Facts(Protocol):
    """What was found out about a capture at one time."""

    @property
    def report(self) -> CaptureReport:
        """The capture's page."""

    @property
    def problem(self) -> str:
        """Why there is only the report; empty if the server has answered."""

    def subjects(self, of: Of) -> Iterable[Subject]:
        """Those of which something is known."""


@dataclass(frozen=True, slots=True)
class ReportAlone:
    """What is known if the server does not answer.

    Args:
        problem: why.
        has_kafka: whether topics are written to Kafka, which the report covers, too.
    """

    report: CaptureReport
    problem: str
    has_kafka: bool = False

    def subjects(self, of: Of) -> Iterable[Subject]:
        """As `Facts.subjects`."""
        return (None,) if of == "capture" or (of == "kafka" and self.has_kafka) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check.

    Args:
        name: in Dagster; stored there, so it stays.
        about: what is true if it passes, for Dagster's pages.
        error: when it fails; empty if it only warns.
        warning: when it warns; empty if it never does.
        page: of the runbook.
        result: makes its result from the facts of its kind of capture, unless runs or a job of its own do.
        blocking: whether nothing is built on an asset of which it fails. It fails the run that evaluates it, so no
            half-hourly one is: for as long as a table lacks changes, a run would fail every half hour.
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
    result: Callable[[Any, Any], Verdict] | None = None
    blocking: bool = False
    is_reported: Callable[[Any], bool] = lambda _: True

    def found(self, facts: Any, subject: Subject) -> Verdict:
        """Its result."""
        assert self.result is not None, self.name  # noqa: S101 - only these are read
        return self.result(facts, subject)


@dataclass(frozen=True, slots=True)
class Found:
    """A result of a check."""

    check: Check
    subject: Subject
    verdict: Verdict


def not_known(reason: str) -> Verdict:
    """That the answer is not known, and why."""
    return Verdict(passed=False, text=f"Not known: {reason}", is_error=False)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What an inspection of a capture finds: the report that is its page, and results of checks."""

    report: CaptureReport
    found: Sequence[Found] = ()

    @classmethod
    def of(cls, checks: Iterable[Check], facts: Facts, *, once: bool = False) -> Self:
        """Each check whose facts are known, and that the others of the whole capture are not known.

        Args:
            once: whether this is no inspection of many, so that what is another text every few seconds is found, too.
        """
        return cls(facts.report, tuple(_found(checks, facts, once=once)))


def _found(checks: Iterable[Check], facts: Facts, *, once: bool) -> Iterator[Found]:
    for check in checks:
        if check.when not in ("half-hourly", "seconds"):
            continue
        if facts.problem and check.made_of != "report":
            yield from unanswered([check], facts.problem)
        elif once or check.is_reported(facts):
            yield from (Found(check, it, check.found(facts, it)) for it in facts.subjects(check.of))


def unanswered(checks: Iterable[Check], reason: str) -> Iterator[Found]:
    """Checks of the whole capture that cannot be answered now."""
    for check in checks:
        if check.of == "capture" and check.when == "half-hourly" and check.made_of != "report":
            yield Found(check, None, not_known(reason))


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
