"""The page of a capture that is made over a readable secondary which has less of the log than what runs have read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import RecoveryFork
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.errors import IncompleteReadError
from cdc_assets.overview import CaptureOverview, inspect_server
from cdc_assets.overview.checks.check import Inspection
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.simulation import DATABASE
from cdc_assets_tests.unit.streaming.two_databases import OTHER, TwoDatabases, config_of_two


class Lagging(TwoDatabases):
    """What is asked of its first database is answered by a secondary."""

    has: Lsn | None = None
    """How far this one is; None if it has all."""

    def _require(self, database: str, known: Lsn) -> None:
        if database == DATABASE and self.has is not None and self.has < known:
            raise IncompleteReadError(f"It is captured up to {self.has}, and not up to {known}. It is asked again")

    def max_transaction_lsn(self, database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN) -> Lsn | None:
        self._require(database, known)
        found = super().max_transaction_lsn(database, after, limit)
        return found if found is None or database != DATABASE or self.has is None else min(found, self.has)

    def capture_instances(self, database: str, known: Lsn = ZERO_LSN) -> Sequence[CaptureInstance]:
        self._require(database, known)
        return super().capture_instances(database)


@contextmanager
def _opened(server: Lagging) -> Iterator[Lagging]:
    yield server


def _two(folder: Path) -> tuple[Lagging, CaptureConfig]:
    server = Lagging()
    lines, other = server.create("lines", rows=2), server.create_other("other", rows=2)
    before = server.commit((lines, "insert", 50, "x"), (other, "insert", 50, "x"))
    config = config_of_two(folder)
    make_capture(server, config).snapshot([lines, other])
    make_capture(server, config).stream()
    server.commit((lines, "insert", 51, "x"))
    server.has = before
    return server, config


def _look(server: Lagging, config: CaptureConfig) -> Inspection:
    return inspect_server(config, lambda: _opened(server), now=server.now)  # type: ignore[arg-type, return-value]


def _check(found: Inspection, name: str) -> list[tuple[bool, bool, str]]:
    return [
        (one.verdict.passed, one.verdict.is_error, one.verdict.text) for one in found.found if one.check.name == name
    ]


def test_secondary_without_a_window_that_is_in_flight_does_not_say_that_nothing_waits(tmp_path: Path) -> None:
    server, config = _two(tmp_path)
    server.has, before = None, server.has
    with pytest.raises(PowerCutError), cut_at("window-planned"):
        make_capture(server, config).stream()
    server.has = before
    report = _look(server, config).report
    assert report.health == "not known"
    assert [trouble.where for trouble in report.unknown] == [DATABASE]
    assert not report.troubles
    server.has = None
    assert _look(server, config).report.unknown == ()


def test_secondary_that_lags_leaves_other_databases_and_tables_as_they_are(tmp_path: Path) -> None:
    server, config = _two(tmp_path)
    before = server.has
    server.has = None
    make_capture(server, config).stream()
    server.has = before
    found = _look(server, config)
    assert [(table.condition, table.reason) for table in found.report.tables] == [("streaming", "")] * 2
    [of_other, of_sales] = found.report.databases
    assert (of_sales.newest, of_other.lag.behind_s) == (None, 0.0)
    [(passed, is_error, text)] = _check(found, "retention_headroom")
    assert (passed, is_error) == (False, False)
    assert text.startswith(f"Not known of {DATABASE}: ")
    assert [(passed, is_error) for passed, is_error, _ in _check(found, "health")] == [(False, False)]
    [(passed, is_error, text)] = _check(found, "capture_job")
    assert (passed, is_error) == (False, False)
    assert f"Not known of {DATABASE}: " in text
    said = {one.subject.database for one in found.found if isinstance(one.subject, TableId)}
    assert said == {OTHER}, "of a table nothing is said that is not known"


def test_page_is_no_other_one_each_time_a_secondary_that_lags_has_moved(tmp_path: Path) -> None:
    """Each would be a page, and results of checks, every few seconds."""
    server, config = _two(tmp_path)
    before = server.has
    server.has = None
    make_capture(server, config).stream()
    assert before is not None
    texts = list[list[str]]()
    for has in (before, Lsn.from_int(int(before) + 10)):
        server.has = has
        found = _look(server, config)
        texts.append([*map(str, found.report.unknown), *(one.verdict.text for one in found.found)])
    assert texts[0] == texts[1]


def test_secondary_that_lags_and_has_all_that_was_read_is_believed(tmp_path: Path) -> None:
    server, config = _two(tmp_path)
    assert _look(server, config).report.health == "healthy"


class Suspended(Lagging):
    """The secondary of its first database did not follow a forced failover."""

    shows: RecoveryFork | None = None

    def recovery_fork(self, database: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        if database == DATABASE and self.shows:
            return replace(self.shows, is_of_replica=True)
        return super().recovery_fork(database, known)

    def is_replica(self, database: str) -> bool:
        return database == DATABASE


def test_sensor_starts_runs_for_other_databases_beside_a_secondary_that_lags(tmp_path: Path) -> None:
    server = Suspended()
    lines, other = server.create("lines", rows=2), server.create_other("other", rows=2)
    config = config_of_two(tmp_path)
    server.commit((lines, "insert", 50, "x"), (other, "insert", 50, "x"))
    make_capture(server, config).snapshot([lines, other])
    left = server.fork
    make_capture(server, config).stream()
    server.fork = RecoveryFork("AFTER", server.tick())
    server.commit((lines, "insert", 51, "x"), (other, "insert", 51, "x"))
    make_capture(server, config).stream()
    assert CaptureOverview(config, server).work.unread_databases() == {}  # type: ignore[arg-type]
    server.shows = left
    server.commit((other, "insert", 52, "x"))
    assert list(CaptureOverview(config, server).work.unread_databases()) == [OTHER]  # type: ignore[arg-type]


class Begun(Lagging):
    """Change data capture was turned off and on in its first database, and the Agent is stopped."""

    is_scanned = True

    def max_captured_lsn(self, database: str) -> Lsn | None:
        return super().max_captured_lsn(database) if self.is_scanned else None

    def capture_job(self, database: str) -> CaptureJob:
        return CaptureJob(database, False, None)


def test_primary_whose_log_is_not_scanned_yet_does_not_lag(tmp_path: Path) -> None:
    server = Begun()
    lines = server.create("lines", rows=2)
    server.commit((lines, "insert", 50, "x"))
    config = config_of_two(tmp_path)
    make_capture(server, config).snapshot([lines])
    make_capture(server, config).stream()
    server.has, server.is_scanned = ZERO_LSN, False
    report = _look(server, config).report
    assert report.health == "in trouble"
    assert any("Agent is stopped" in trouble.what for trouble in report.troubles)
    assert DATABASE not in [trouble.where for trouble in report.unknown]
