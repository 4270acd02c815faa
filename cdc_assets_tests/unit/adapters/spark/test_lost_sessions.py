"""A session that has ended is dropped by each thread that used it, and the one that came after it by none of them."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException

from cdc_assets.adapters.spark.failures import SparkTaskError
from cdc_assets.adapters.spark.session import LazySession
from cdc_assets.adapters.spark.settings import SparkSettings
from cdc_assets.core.interruption import Interrupted
from cdc_assets.errors import EngineError


def session(master: str = "local[1]") -> Any:
    """One that runs."""
    java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, _jsc=java), stop=Mock())


def test_error_of_a_session_that_another_thread_has_replaced_leaves_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    first, second, third = session(), session(), session()
    made = iter([first, second, third])
    lazy = LazySession(SparkSettings("local[1]"), given=lambda: next(made))
    assert lazy.session() is first

    def ends_in_two_threads() -> None:
        with lazy.watched():
            first.sparkContext._jsc = None
            assert lazy.session() is second, "by the other thread, which has noticed the end earlier"
            raise PySparkException("Job 7 cancelled because SparkContext was shut down")

    def ends() -> None:
        with lazy.watched():
            raise PySparkException("Job 8 cancelled because SparkContext was shut down")

    with pytest.raises(SparkTaskError):
        ends_in_two_threads()
    assert lazy.session() is second
    with pytest.raises(SparkTaskError):
        ends()
    assert lazy.session() is third
    assert not [one for one in (first, second, third) if one.stop.called], "they are somebody else's"


def test_call_in_a_context_that_another_thread_has_let_go_of_is_a_lost_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two jobs whose JVM was killed, the first to notice stops the context; pyspark fails in the other one at what is None then."""
    monkeypatch.setattr(SparkContext, "_gateway", None)
    first, second = session(), session()
    made = iter([first, second])
    lazy = LazySession(SparkSettings("local[1]"), given=lambda: next(made))
    assert lazy.session() is first
    for error in (AttributeError("a bug of ours"), EngineError("the tasks' own")):
        with pytest.raises(type(error)), lazy.watched():
            raise error
    first.sparkContext._jsc = None
    with pytest.raises(SparkTaskError, match="does not answer any more"), lazy.watched():
        first.sparkContext._jsc.setCallSite(None)
    assert lazy.session() is second


@pytest.mark.parametrize("error", [Interrupted(), PySparkException("no file server"), EngineError("no libraries")])
def test_session_that_could_not_be_prepared_is_prepared_when_it_is_needed_again(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Executors would have none of our code, and nobody would watch whether there are any."""
    monkeypatch.setattr(SparkContext, "_gateway", None)
    prepared = list[Any]()

    def prepare(lazy: LazySession, found: Any) -> None:
        prepared.append(found)
        if len(prepared) == 1:
            raise error

    monkeypatch.setattr(LazySession, "_prepare", prepare)
    cluster = session("spark://head:7077")
    lazy = LazySession(SparkSettings("spark://head:7077"), given=lambda: cluster)
    with pytest.raises(type(error)):
        lazy.session()
    assert lazy.session() is lazy.session() is cluster
    assert prepared == [cluster, cluster]
