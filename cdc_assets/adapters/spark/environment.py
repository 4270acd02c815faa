"""The variables by which pyspark and its JVM learn, when a session is made, which Python its workers run and where it listens.

They have no property that would do. So they are set while a session is made, and for no longer: a session that a user makes later
in the same process, perhaps on a cluster, gets the process's own. Sessions may be made by several threads at once: the first that begins
keeps what was set before, and the last that ends sets it again.
"""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cdc_assets.adapters.spark.settings import SparkSettings

_PYTHON, _ADDRESS = "PYSPARK_PYTHON", "SPARK_LOCAL_IP"
_lock = threading.Lock()
_before: dict[str, str | None] = {}
_inside = 0


@contextmanager
def environment_of(settings: SparkSettings) -> Iterator[None]:
    """A block in which a session is made."""
    global _inside
    with _lock:
        if not _inside:
            _before.update({name: os.environ.get(name) for name in (_PYTHON, _ADDRESS)})
        _inside += 1
        os.environ.update(_wanted(settings))
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            for name, text in _before.items() if not _inside else ():
                os.environ.pop(name, None)
                os.environ.update({} if text is None else {name: text})


def _wanted(settings: SparkSettings) -> Mapping[str, str]:
    python = settings.config.get("spark.pyspark.python") or _before[_PYTHON] or sys.executable
    if settings.remote or not settings.master.startswith("local"):
        return {_PYTHON: python}
    # pages, and the master and workers of a local cluster, are of this machine only
    return {_PYTHON: python, _ADDRESS: _before[_ADDRESS] or "127.0.0.1"}
