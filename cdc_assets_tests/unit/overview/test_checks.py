"""The registry of checks: one entry is all that is to be known of a check."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import dagster as dg
import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.defs.checks.events import result_of, specs_of
from cdc_assets.defs.checks.job import definitions_of
from cdc_assets.defs.view import CaptureView, Observation
from cdc_assets.errors import CdcError, QueryError
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.checks import connector, sqlserver
from cdc_assets.overview.checks.check import (
    Check,
    Facts,
    Inspection,
    Of,
    ReportAlone,
    Subject,
    Verdict,
    table_of,
    unanswered,
)
from cdc_assets.overview.checks.health import HEALTH
from cdc_assets.overview.checks.registry import CHECKS

PAGE, ORDERS = dg.AssetKey("windows"), dg.AssetKey("orders")
TABLE = TableId("SalesDb", "dbo", "orders")
REPORT = CaptureReport("shop", datetime.now(UTC))


@dataclass
class Tables:
    """A catalogue, and facts, of one table."""

    report: CaptureReport = REPORT
    problem: str = ""

    def checked(self, of: Of) -> dict[dg.AssetKey, Subject]:
        subjects: dict[Of, dict[dg.AssetKey, Subject]] = {"capture": {PAGE: None}, "table": {ORDERS: TABLE}}
        return subjects.get(of, {})

    def subjects(self, of: Of) -> list[Subject]:
        return list(self.checked(of).values())


def passes(facts: Tables, subject: Subject) -> Verdict:
    """All is well."""
    return Verdict(passed=True, text=f"{subject} of {facts.report.capture}", facts={"rows": [{"rows": 1}]})


ROUND = Check(
    name="rows_are_round",
    of="capture",
    about="Rows are round.",
    error="a row is square",
    page="gap",
    when="half-hourly",
    made_of="answers",
    result=passes,
    blocking=True,
)
SMALL = replace(ROUND, name="table_is_small", of="table", blocking=False)


def view(facts: Facts | CdcError) -> CaptureView:
    """A capture whose server answers so."""

    @contextmanager
    def answers() -> Iterator[Facts]:
        if isinstance(facts, CdcError):
            raise facts
        yield facts

    return CaptureView("shop", PAGE, "windows", lambda: Observation(REPORT), answers, (HEALTH, ROUND, SMALL))


def evaluated(facts: Facts | CdcError) -> dict[str, dg.AssetCheckEvaluation]:
    """What the job of checks finds."""
    made = definitions_of([HEALTH, ROUND, SMALL], Tables(), "shop_headroom", "", lambda _: view(facts))
    assets = [dg.AssetSpec(PAGE), dg.AssetSpec(ORDERS)]
    job = dg.define_asset_job("shop_headroom", dg.AssetSelection.checks(*made))
    definitions = dg.Definitions(assets, asset_checks=made, jobs=[job], executor=dg.in_process_executor)
    result = definitions.resolve_job_def("shop_headroom").execute_in_process(raise_on_error=False)
    return {found.check_name: found for found in result.get_asset_check_evaluations()}


def test_one_entry_makes_spec_step_of_the_job_and_what_runs_report() -> None:
    (spec,) = specs_of(ROUND, Tables())
    assert (spec.name, spec.blocking, spec.description) == ("rows_are_round", True, "Rows are round.")
    found = evaluated(Tables())
    assert {name: one.asset_key for name, one in found.items()} == {
        "health": PAGE,
        "rows_are_round": PAGE,
        "table_is_small": ORDERS,
    }
    assert found["rows_are_round"].blocking
    seen = {one.check_name: one for one in Observation.of(Inspection.of([ROUND, SMALL], Tables()), Tables()).checks}
    for name in ("rows_are_round", "table_is_small"):
        assert (seen[name].passed, seen[name].description) == (found[name].passed, found[name].description)
        assert isinstance(seen[name].metadata["rows"], dg.TableMetadataValue)


def test_server_that_does_not_answer_leaves_no_check_of_the_capture_as_it_was() -> None:
    found = Inspection.of([ROUND, SMALL], ReportAlone(REPORT, "the server is away"))
    (one,) = Observation.of(found, Tables()).checks
    assert (one.check_name, one.passed, one.blocking, one.severity) == (
        "rows_are_round",
        False,
        True,
        dg.AssetCheckSeverity.WARN,
    )
    assert one.description == "Not known: the server is away"
    assert [found.check.name for found in unanswered([HEALTH, ROUND, SMALL], "frozen")] == ["rows_are_round"]
    others = evaluated(QueryError("away"))
    assert {name: one.passed for name, one in others.items()} == dict.fromkeys(
        ["health", "rows_are_round", "table_is_small"], False
    )
    assert others["rows_are_round"].description == "Not known: QueryError: away"


def test_facts_are_shown_as_what_they_are() -> None:
    """A link to Spark's pages is a value of Dagster already."""
    facts = {"link": dg.MetadataValue.url("http://127.0.0.1:4040"), "rows": [{"id": 1}], "none": [], "count": 3}
    result = result_of(sqlserver.MATCHES, Verdict(True, "equal", facts=facts), dg.AssetKey("orders"))
    table = dg.MetadataValue.table([dg.TableRecord({"id": 1})])
    assert {**result.metadata, "none": None} == {
        "link": facts["link"], "rows": table, "none": None, "count": dg.MetadataValue.int(3),
    }  # fmt: skip


def test_check_that_runs_do_not_report_is_left_to_the_job() -> None:
    shy = replace(ROUND, is_reported=lambda _: False)
    assert Inspection.of([shy], Tables()).found == ()
    assert len(Inspection.of([shy], Tables(), once=True).found) == 1


def test_checks_that_both_kinds_have_are_alike() -> None:
    for one in (*sqlserver.CHECKS, *connector.CHECKS):
        other = CHECKS[one.name]
        assert (one.page, one.of, one.blocking, one.when) == (other.page, other.of, other.blocking, other.when)


def test_a_job_that_is_run_every_half_hour_does_not_fail_by_what_it_finds() -> None:
    assert [
        one.name for one in (*sqlserver.CHECKS, *connector.CHECKS) if one.blocking and one.when == "half-hourly"
    ] == []


@pytest.mark.parametrize("one", [*sqlserver.CHECKS, *connector.CHECKS], ids=lambda one: one.name)
def test_each_says_when_it_fails_and_who_evaluates_it(one: Check) -> None:
    assert one.error or one.warning
    assert (one.result is None) == (one.made_of == "run")
    assert f"| `{one.name}` | " in table_of([one])


def test_stored_names_and_severities_stay() -> None:
    """They are in Dagster's storage of users."""
    blocking = {name for name, one in CHECKS.items() if one.blocking}
    assert set(CHECKS) == {
        "capture_job",
        "complete_to_log_end",
        "connector",
        "health",
        "lsn_continuity",
        "matches_source",
        "published",
        "retention_headroom",
        "schema_drift",
    }
    assert blocking == {"lsn_continuity"}
