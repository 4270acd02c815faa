"""A look at a capture while the clean-up job works: what waits is seen waiting, or as a gap, whichever question it comes before."""

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path

from cdc_assets.core.lsn import Lsn
from cdc_assets.overview import inspect_server
from cdc_assets.overview.report import LATE_S
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedServer
from cdc_assets_tests.unit.streaming.tables import two_tables

QUESTIONS = ("capture_job", "capture_instances", "max_transaction_lsn", "commit_times", "server_time")


class Asked:
    """A server on which the clean-up job removes all but the newest commit before a question of one kind is answered.

    Args:
        question: how many of the questions of `QUESTIONS` are answered before; none at all: the job does not run.
    """

    def __init__(self, server: SimulatedServer, question: int | None) -> None:
        self._server, self._question = server, question
        self.asked = 0
        self._kept = server.transactions[-1]

    def __getattr__(self, name: str) -> object:
        if name in QUESTIONS:
            if self.asked == self._question:
                self._server.clean_up(self._kept)
            self.asked += 1
        return self._times if name == "commit_times" else getattr(self._server, name)

    def _times(self, database: str, lsns: Sequence[Lsn], read: Lsn) -> dict[Lsn, datetime]:
        """The newest commit is of now; the others are late."""
        known = self._server.commit_times(database, lsns, read)
        late = timedelta(seconds=LATE_S + 10)
        return {lsn: time if lsn == self._kept else time - late for lsn, time in known.items()}


def test_it_is_never_healthy(tmp_path: Path) -> None:
    asked, question = 1, -1
    while question < asked:  # at last a look beside no clean-up
        server, config, lines, _ = two_tables(tmp_path / str(question))
        server.commit((lines, "insert", 50, "a"))
        make_capture(server, config).stream()
        server.commit((lines, "insert", 51, "b"))
        server.commit((lines, "insert", 52, "c"))
        source = Asked(server, question)
        report = inspect_server(config, lambda source=source: nullcontext(source), now=server.now).report  # type: ignore[misc]
        assert not report.healthy, f"{DATABASE} was cleaned up before question {question}"
        asked, question = source.asked, question + 1
    assert asked >= len(QUESTIONS)
