"""Whether this process has a session, while somebody else makes one."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from cdc_assets.adapters.spark import jvm


def test_session_that_another_thread_is_making_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    begun, lets = threading.Event(), threading.Event()

    def make() -> None:
        """As `SparkContext.getOrCreate`: the context is known before it can be used."""
        with SparkContext._lock:
            context = SimpleNamespace()
            SparkContext._active_spark_context = context
            begun.set()
            assert lets.wait(20)
            context._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))

    with ThreadPoolExecutor(2) as threads:
        making = threads.submit(make)
        assert begun.wait(20)
        asked = threads.submit(jvm.has_context)
        with pytest.raises(TimeoutError):
            asked.result(0.1)
        lets.set()
        assert asked.result(20)
        making.result()
