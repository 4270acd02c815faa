"""What a connection's server must have before it is asked."""

from collections.abc import Callable

import pytest

from cdc_assets.adapters.sqlserver import queries
from cdc_assets.adapters.sqlserver.reached import Floor, Reached
from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import IncompleteReadError

NEWEST = Lsn.from_int(9)


def server_on(fork: str | None) -> tuple[Callable[..., object], list[str]]:
    """Answers of a server, and the queries that it was asked."""
    asked = list[str]()

    def ask(query: str, *parameters: object) -> object:
        asked.append(query)
        return fork if query == queries.RECOVERY_FORK else NEWEST.raw

    return ask, asked


def test_a_server_on_a_fork_that_was_left_has_nothing_however_far_it_is() -> None:
    ask, _ = server_on("former")
    reached = Reached()
    reached.check(Floor("SalesDb", NEWEST), ask, "the server")
    with pytest.raises(IncompleteReadError, match="recovery fork FORMER"):
        reached.check(Floor("SalesDb", NEWEST, left=("FIRST", "FORMER")), ask, "the server")


@pytest.mark.parametrize("fork", ["now", None])
def test_another_one_is_asked_once_for_each_fork_that_is_left(fork: str | None) -> None:
    ask, asked = server_on(fork)
    reached = Reached()
    for left in ((), ("FIRST",), ("FIRST",), ("FIRST", "FORMER")):
        reached.check(Floor("SalesDb", NEWEST, left=left), ask, "the server")
    assert asked.count(queries.RECOVERY_FORK) == 2


def test_what_it_had_on_a_fork_that_it_has_left_since_counts_no_more() -> None:
    """A connection outlives a forced failover that its server follows, and the log goes back."""
    fork, newest = ["FORMER"], [NEWEST]
    reached = Reached()

    def ask(query: str, *parameters: object) -> object:
        return fork[0] if query == queries.RECOVERY_FORK else newest[0].raw

    reached.check(Floor("SalesDb", NEWEST), ask, "the server")
    fork[0], newest[0] = "NOW", Lsn.from_int(5)
    with pytest.raises(IncompleteReadError, match="captured up to"):
        reached.check(Floor("SalesDb", Lsn.from_int(7), left=("FORMER",)), ask, "the server")


def test_what_is_captured_is_in_the_log() -> None:
    ask, asked = server_on(None)
    reached = Reached()
    for captured, queried in ((False, 1), (True, 2), (False, 2), (True, 2)):
        reached.check(Floor("SalesDb", NEWEST, captured), ask, "the server")
        assert len(asked) == queried
