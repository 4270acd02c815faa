"""Spark Connect's client without its packages, or without a server."""

import socket
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from cdc_assets.adapters.spark import connect
from cdc_assets.adapters.spark.connect import Progress
from cdc_assets.adapters.spark.failures import SparkTaskError
from cdc_assets.adapters.spark.session import LazySession
from cdc_assets.adapters.spark.settings import SparkSettings
from cdc_assets.errors import ConfigurationError

_PREPARATIONS = {
    "a package is missing": "import sys; sys.modules['grpc_status'] = None",
    "it answers nothing": "from cdc_assets.adapters.spark import connect; connect._READY_S = 1.0",
}
_OPEN_SESSION = """
{preparation}
from cdc_assets.adapters.spark.session import LazySession
from cdc_assets.adapters.spark.settings import SparkSettings
from cdc_assets.errors import ConfigurationError
try:
    LazySession(SparkSettings(remote={remote!r})).session()
except ConfigurationError as error:
    print(error)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("preparation", "told"),
    [
        ("a package is missing", 'pip install "cdc-assets[connect]"'),
        ("it answers nothing", "no Spark Connect server answers within 1 s"),
    ],
)
def test_server_that_cannot_be_used_is_reported(tmp_path: Path, preparation: str, told: str) -> None:
    script = tmp_path / "script.py"  # pyspark takes a program without a file for its own tests
    with socket.create_server(("127.0.0.1", 0)) as server:
        remote = f"sc://127.0.0.1:{server.getsockname()[1]}/;token=secret"
        script.write_text(_OPEN_SESSION.format(preparation=_PREPARATIONS[preparation], remote=remote))
        done = subprocess.run([sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True)
    assert told in done.stdout, done.stderr
    assert "secret" not in done.stdout + done.stderr


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer is given up after a second."""
    monkeypatch.setattr(connect, "_READY_S", 1.0)


@pytest.mark.usefixtures("soon")
def test_server_that_is_not_there_is_reported_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        remote = f"sc://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ConfigurationError, match="answers"):
        LazySession(SparkSettings(remote=remote)).session()


@pytest.mark.usefixtures("soon")
def test_server_that_was_there_and_is_gone_may_come_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        remote = f"sc://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(SparkTaskError, match=f"{remote} has gone") as error:
        LazySession(SparkSettings(remote=remote), _worked=True).session()
    assert error.value.retryable


def test_tasks_run_as_long_as_the_newest_report_of_a_query_says_so() -> None:
    session = Mock()
    progress = Progress(session)
    (hear,) = session.registerProgressHandler.call_args.args
    assert (progress.running, progress.reported) == (False, False)
    hear([], 2, "first", False)
    hear([], 0, "second", False)
    assert (progress.running, progress.reported) == (True, True)
    hear([], 0, "first", True)
    assert not progress.running


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a server."""
    for name in ("wait_until_ready", "driver_address"):
        monkeypatch.setattr(f"cdc_assets.adapters.spark.session.{name}", Mock(return_value=""))
    monkeypatch.setattr(LazySession, "_prepare", Mock())


@pytest.mark.usefixtures("answers")
def test_session_is_made_anew_and_not_that_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which `getOrCreate` would give, with our settings, whichever server it is of."""
    spark, made = Mock(), [Mock(spec=["client", "is_stopped"], is_stopped=False) for _ in range(2)]
    spark.builder.remote.return_value.config.return_value.create.side_effect = made
    monkeypatch.setattr("cdc_assets.adapters.spark.session.SparkSession", spark)
    lazy = LazySession(SparkSettings(remote="sc://here"))
    assert lazy.session() is lazy.session() is made[0]
    made[0].is_stopped = True
    assert lazy.session() is made[1]


@pytest.mark.usefixtures("answers")
def test_session_of_a_user_is_left_as_it_is() -> None:
    users = Mock(spec=["client", "is_stopped"], is_stopped=False)
    lazy = LazySession(SparkSettings(remote="sc://here"), given=lambda: users)
    assert lazy.session() is users
    users.client.set_retry_policies.assert_not_called()
