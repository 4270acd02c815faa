"""Checks executors before the first task: Python version, libraries, origin of the code.

The probe is pickled by value: unpickling imports nothing of this package, so it can report that the package is missing.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from cdc_assets.adapters.spark.shipping import UNPACKED
from cdc_assets.errors import EngineError

log = logging.getLogger(__name__)

_NEEDED = ("numpy", "pyarrow", "pyarrow.parquet", "deltalake", "mssql_python", "regex")
_CODE = ("cdc_assets.snapshot.tasks", "cdc_assets.streaming.tasks", "cdc_assets.incremental.staging")
Facts = dict[str, Any]


def probe() -> Callable[[int], Facts]:
    """A function for a task that returns the available and the missing modules."""
    needed = (*_NEEDED, *_CODE)

    def find_modules(_: int) -> Facts:
        import importlib
        import platform
        import socket
        import sys
        import time

        missing = {}
        for name in needed:
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - whatever it is, tasks could not run
                missing[name] = f"{type(error).__name__}: {error}"
        code = sys.modules.get("cdc_assets")
        library = sys.modules.get("pyarrow")
        time.sleep(0.2)  # so that each slot gets one of these tasks
        return {
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "executable": sys.executable,
            "code": str(getattr(code, "__file__", "")),
            "libraries": str(getattr(library, "__file__", "")),
            "missing": missing,
        }

    return find_modules


def require_modules(found: Sequence[Facts], where: str) -> None:
    """Raise an error if an executor lacks a module.

    Raises:
        EngineError: they cannot run the tasks.
    """
    lacking = [facts for facts in found if facts["missing"]]
    if lacking:
        first = lacking[0]
        missing = "; ".join(f"{name} ({reason})" for name, reason in first["missing"].items())
        raise EngineError(
            f"Executors of {where} cannot run the tasks: {first['executable']} (Python {first['python']}) on {first['host']} "
            f"cannot import {missing}. Next: install cdc-assets[tasks] for that Python, let spark.pyspark.python name another, "
            "or ship the libraries: `cdc-assets spark --archive FILE` makes the archive that spark.archives names."
        )


def require_shipped_code(found: Sequence[Facts], where: str, archive: str) -> None:
    """Raise an error for executors that import our code from elsewhere than the archive that was shipped.

    Raises:
        EngineError: they would run other code than the driver's.
    """
    if other := next((facts for facts in found if archive not in facts["code"]), None):
        raise EngineError(
            f"Executors of {where} would run other code than this process: {other['code']} on {other['host']}, not the "
            f"shipped {archive}. Next: remove what puts it before the shipped code on their sys.path."
        )


def log_facts(found: Sequence[Facts], where: str) -> None:
    """Log the facts about executors, and whether code and libraries were shipped or are installed."""
    first = found[0]
    log.info(
        "Spark at %s: %d tasks at once, Python %s (%s), code %s, libraries %s.",
        where,
        len(found),
        first["python"],
        first["executable"],
        "shipped by this process" if ".zip" in first["code"] else f"installed ({first['code']})",
        "shipped by spark.archives" if f"/{UNPACKED}/" in first["libraries"] else "installed",
    )
