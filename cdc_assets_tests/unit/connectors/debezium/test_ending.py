"""A connector's end is told with its meaning, and its log without secrets."""

import io
import logging

import pytest

from cdc_assets.connectors.debezium.ending import ending_error
from cdc_assets.connectors.debezium.log import EngineLog


@pytest.mark.parametrize(
    ("reason", "next_step", "retryable"),
    [
        (
            "The db server no longer has the log: bin.000003 is no longer available on the server",
            "snapshot.mode",
            False,
        ),
        ("ERROR: requested WAL segment 000000010 has already been removed", "snapshot.mode", False),
        ('Error | replication slot "debezium" is active for PID 7', "another process reads", True),
        ("Communications link failure", "see that it is up", True),
        ("PSQLException: This replication stream has been closed.", "see that it is up", True),
        (
            "SQLNonTransientConnectionException: No operations allowed after connection closed.",
            "see that it is up",
            True,
        ),
        ("Connection to 127.0.0.1:5432 refused. | Connection refused", "see that it is up", True),
        ("FATAL: terminating connection due to administrator command", "see that it is up", True),
        ("Access denied for user 'x'@'y' (using password: YES)", "database.user", False),
        (
            "Access denied; you need (at least one of) the REPLICATION SLAVE privilege(s)",
            "the user lacks a right",
            False,
        ),
        ("its process is gone (exit status 3)", "engine.heap", False),
        ("something new", "see its log", False),
    ],
)
def test_meaning(reason: str, next_step: str, *, retryable: bool) -> None:
    error = ending_error(reason)
    assert reason in str(error)
    assert next_step in str(error)
    assert error.retryable is retryable


def test_the_log_is_reported_by_level_and_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    engine = EngineLog({"database.password": "pass-word", "database.user": "me"})
    text = b"10:00:00.000 INFO  A begins\n10:00:00.001 ERROR B me pass-word is wrong\n\tat C\n"
    with caplog.at_level(logging.INFO):
        engine.follow(io.BytesIO(text)).join()
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.ERROR, logging.ERROR]
    assert "pass-word" not in caplog.text
    assert engine.last_error() == "10:00:00.001 ERROR B me ******** is wrong"
