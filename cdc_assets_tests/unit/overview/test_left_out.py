"""What is recorded of tables and databases that the settings leave out now is nobody's trouble; of all others it stays one."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.ledger.snapshot_state import SnapshotRun
from cdc_assets.ledger.state import LogHistory
from cdc_assets.overview import CaptureOverview, inspect_server, report_of
from cdc_assets.overview.checks.check import Inspection
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.simulation import DATABASE
from cdc_assets_tests.unit.streaming.tables import two_tables
from cdc_assets_tests.unit.streaming.two_databases import OTHER, TwoDatabases, config_of_two


def test_table_that_stopped_is_no_trouble_once_the_settings_leave_it_out(tmp_path: Path) -> None:
    """However long ago a run has recorded it, and whatever the server has of it now."""
    server, config, lines, orders = two_tables(tmp_path)
    make_capture(server, config).stream()
    server.disable("dbo_orders")
    make_capture(server, config).stream()
    server.enable(orders, "dbo_orders_again")
    less = replace(config, filters=replace(config.filters, table_exclude=("dbo.orders",)))

    def seen(settings: CaptureConfig) -> Inspection:
        return inspect_server(settings, lambda: nullcontext(server), now=server.now)  # type: ignore[arg-type]

    for _ in range(2):
        assert seen(config).report.health == "in trouble"
        found = seen(less)
        assert (found.report.health, found.report.counts()) == ("healthy", {"excluded": 1, "streaming": 1})
        [said] = [text for text in found.report.advice if "no longer captured" in text]
        assert all(table.headroom_h is None for table in found.report.tables if table.table == orders)
        assert said.startswith(f"{orders} is no longer captured. The settings leave it out")
        assert not [one for one in found.found if one.verdict.word == "failed" or one.subject == orders]
        make_capture(server, less).stream()
    server.disable("dbo_lines")
    assert [trouble.where for trouble in seen(less).report.troubles] == [str(lines)], "it is captured"


def test_restored_database_is_no_trouble_once_the_settings_leave_it_out(tmp_path: Path) -> None:
    server = TwoDatabases()
    lines, other = server.create("lines", rows=2), server.create_other("other", rows=2)
    server.commit((lines, "insert", 50, "x"), (other, "insert", 50, "x"))
    config = config_of_two(tmp_path)
    make_capture(server, config).snapshot([lines, other])
    make_capture(server, config).stream()
    less = replace(config, connection=replace(config.connection, databases=(DATABASE.upper(),)))

    def healthy(settings: CaptureConfig, restored: str) -> tuple[bool, int]:
        seen = CaptureOverview(settings, server)
        run = SnapshotRun(9, restored, (), (), failed=(((lines if restored == DATABASE else other), "denied"),))
        seen.state = replace(
            seen.state,
            logs={**seen.state.logs, restored: LogHistory(restored="It was restored. Next: wait")},
            snapshots={} if restored == DATABASE else {restored: run},
        )
        server.databases = lambda: list(settings.connection.databases)  # type: ignore[method-assign]
        report = report_of(seen, server.now)
        return report.health == "healthy", sum("no longer captured" in text for text in report.advice)

    assert healthy(config, OTHER) == (False, 0)
    assert healthy(less, OTHER) == (True, 1)
    assert healthy(less, DATABASE) == (False, 0), "whatever the letter case"


def test_table_that_went_on_without_changes_is_not_unfinished_once_the_settings_leave_it_out(tmp_path: Path) -> None:
    """No snapshot of it can be taken that would end this; those of others can."""
    server, config, lines, orders = two_tables(tmp_path, gap_policy="ignore")
    make_capture(server, config).stream()
    server.commit((orders, "insert", 94, "lost"), (lines, "insert", 94, "lost"))
    server.clean_up(server.tick())
    server.commit((orders, "insert", 95, "kept"))
    make_capture(server, config).stream()
    less = replace(config, filters=replace(config.filters, table_exclude=("dbo.orders",)))

    def lacking(settings: CaptureConfig) -> list[str]:
        unfinished = report_of(CaptureOverview(settings, server), server.now).unfinished
        return [text.partition(" lacks changes ")[0] for text in unfinished if " lacks changes " in text]

    for _ in range(2):
        assert (lacking(config), lacking(less)) == ([str(lines), str(orders)], [str(lines)])
        [said] = report_of(CaptureOverview(less, server), server.now).advice
        assert said.startswith(f"{orders} is no longer captured. It lacks changes after ")
        make_capture(server, less).stream()
