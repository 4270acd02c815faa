"""A refused password is not offered again and again, by whomever of the machine."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cdc_assets.config.engine import engine_config
from cdc_assets.connectors.databases.session import DriverSession
from cdc_assets.core import refused_logins
from cdc_assets.core.refused_logins import FIRST_PAUSE_S, LONGEST_PAUSE_S, offered, offering_anyway
from cdc_assets.core.state_folder import choose_state_folder
from cdc_assets.errors import ConnectionLostError, CredentialsError

REFUSAL = "db:1433 refused the login: Login failed. Next: check database.password"


class Server:
    """A server that knows one password."""

    def __init__(self) -> None:
        self.password = "right"
        self.offered: list[str] = []
        self.now = 1_000_000.0

    def login(self, password: str, user: str = "reader") -> None:
        with offered("db:1433", user, password):
            self.offered.append(password)
            if password != self.password:
                raise CredentialsError(REFUSAL)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Of a machine that has not logged in yet."""
    found = Server()
    choose_state_folder(tmp_path / "state")
    monkeypatch.setattr(refused_logins, "_accounts", {})
    monkeypatch.setattr(
        refused_logins, "time", SimpleNamespace(time=lambda: found.now, monotonic=time.monotonic), raising=True
    )
    return found


def refused(login: Callable[[], None]) -> str:
    with pytest.raises(CredentialsError) as caught:
        login()
    return str(caught.value)


def test_same_password_waits_and_another_one_does_not(server: Server) -> None:
    assert refused(lambda: server.login("old")) == REFUSAL
    text = refused(lambda: server.login("old"))
    assert server.offered == ["old"]
    assert text.startswith(
        "db:1433 refused the login: Login failed. The same password is offered again after 13:47:00 UTC"
    )
    assert text.endswith("Next: check database.password")
    server.login("right")
    assert server.offered == ["old", "right"]


@pytest.mark.long
def test_pause_doubles_up_to_a_limit(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_logins, "_digest", "{}{}".format)  # the slow one is that of all other tests
    server.password = "new"
    for _ in range(24 * 3600 // 5):  # each pause is a multiple of five seconds
        server.now += 5
        refused(lambda: server.login("old"))
        if server.now == 1_000_060:
            assert len(server.offered) == 2
    assert 24 * 3600 / LONGEST_PAUSE_S < len(server.offered) < 24 * 3600 / LONGEST_PAUSE_S + 6


def test_login_that_was_unlocked_is_used_again(server: Server) -> None:
    server.password = "locked"
    refused(lambda: server.login("right"))
    server.password = "right"
    refused(lambda: server.login("right"))
    server.now += FIRST_PAUSE_S
    server.login("right")
    server.login("right")
    assert len(server.offered) == 3


def test_other_processes_of_the_machine_know_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(lambda: server.login("old secret"))
    monkeypatch.setattr(refused_logins, "_accounts", {})
    refused(lambda: server.login("old secret"))
    assert len(server.offered) == 1
    [file] = (tmp_path / "state" / "logins").iterdir()
    assert "old secret" not in file.read_text()
    assert file.stat().st_mode & 0o77 == 0
    server.password = "old secret"
    server.now += FIRST_PAUSE_S
    server.login("old secret")
    assert not list((tmp_path / "state" / "logins").iterdir())


@pytest.mark.long
def test_process_whose_environment_is_old_is_not_helped_by_others(server: Server) -> None:
    """Each login by the right password, or a refused one by another, would let it offer its own again."""
    for _ in range(12):
        refused(lambda: server.login("old"))
        refused(lambda: server.login("older"))
        server.login("right")
        server.now += 5
    assert server.offered.count("old") == server.offered.count("older") == 2
    assert server.offered.count("right") == 12


def test_other_users_are_not_concerned(server: Server) -> None:
    refused(lambda: server.login("old"))
    refused(lambda: server.login("old", user="other"))
    assert len(server.offered) == 2
    with offered("db:1433", "", ""):
        server.offered.append("by the machine's own account")
    assert len(server.offered) == 3


def test_clock_that_was_set_back_makes_no_pause_longer(server: Server) -> None:
    refused(lambda: server.login("old"))
    server.now -= 3600
    refused(lambda: server.login("old"))
    assert len(server.offered) == 2


def test_person_who_asks_offers_it_once(server: Server) -> None:
    refused(lambda: server.login("old"))
    with offering_anyway():
        refused(lambda: server.login("old"))
        refused(lambda: server.login("old"))
    assert len(server.offered) == 2
    server.password = "old"
    with offering_anyway():
        server.login("old")
    server.login("old")
    assert len(server.offered) == 4


def test_other_errors_are_no_refusals(server: Server) -> None:
    for _ in range(3):
        with pytest.raises(ConnectionLostError), offered("db:1433", "reader", "right"):
            raise ConnectionLostError("away")
    server.login("right")


def test_tasks_that_log_in_at_the_same_moment_offer_it_once(server: Server) -> None:
    together = threading.Barrier(8)

    def task() -> None:
        together.wait()
        refused(lambda: server.login("old"))

    threads = [threading.Thread(target=task) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.offered == ["old"]


def test_login_that_hangs_holds_others_for_a_while(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_logins, "_LONGEST_TURN_S", 0.05)
    may_end = threading.Event()

    def hang() -> None:
        with offered("db:1433", "reader", "right"):
            may_end.wait(60)

    thread = threading.Thread(target=hang)
    thread.start()
    server.login("right")
    may_end.set()
    thread.join()
    assert server.offered == ["right"]


def test_drivers_of_other_databases_ask_here_too(server: Server) -> None:
    """The watch of a connector's database looks every four seconds."""
    config = engine_config(
        {
            "connector.class": "MySqlConnector",
            "topic.prefix": "shop",
            "lake.path": "/lake",
            "database.hostname": "db",
            "database.user": "reader",
            "database.password": "old",
        }
    )

    def connect() -> None:
        server.offered.append("old")
        raise OSError("Access denied")

    for _ in range(15):
        with pytest.raises(CredentialsError, match="refuses the user 'reader'"):
            DriverSession(config, connect, OSError, refused=lambda _: True, lost=lambda _: False)
        server.now += 4
    assert 1 <= len(server.offered) <= 2
