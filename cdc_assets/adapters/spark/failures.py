"""Translates failures of Spark jobs: Spark prints a page of Java, of which one line is the last cause.

A job that fails because of the cluster's setup fails at every repetition: missing code or library, another Python
version, an unreachable driver. That is an `EngineError`, which ends the run and says what to do. All other failures,
such as a killed worker or a lost executor, may be transient: a `SparkTaskError`, after which the read is repeated.
"""

import logging
import re
from collections.abc import Callable

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from cdc_assets.adapters.spark.jvm import LOST
from cdc_assets.errors import CdcError, EngineError, RetryableError

log = logging.getLogger(__name__)

JOB_ERRORS = (PySparkException, Py4JError, *LOST)
"""Exceptions of a failed job."""

_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): (.+)")
_VERSIONS = re.compile(r"\[PYTHON_VERSION_MISMATCH\] (.+)|(Python in worker has different version.+)")
_PROGRAM = re.compile(r'Cannot run program "([^"]*)"')
_FETCH = re.compile(
    r"(?:Failed to (?:fetch|download|open|connect to)|Error(?: while)? (?:fetching|downloading))[^\n]*(?:/files/|/jars/|spark://)[^\n]*"
)
_REMOVED = re.compile(r"Master removed our application")
_CALL = re.compile(r"An error occurred while calling \S+$")
"""All that py4j says of a call whose connection broke."""
_AWAY = re.compile(r"StatusCode\.(?:UNAVAILABLE|DEADLINE_EXCEEDED)")
_GONE = re.compile(
    r"StatusCode\.UNAVAILABLE|SparkContext was shut down|stopped SparkContext|INVALID_HANDLE|SESSION_CLOSED|SESSION_NOT_FOUND|SESSION_CHANGED|Master removed our application|All masters are unresponsive"
)
_LIBRARIES = (
    "install cdc-assets[tasks] for the Python of the executors, or ship the libraries: `cdc-assets spark --archive` makes the "
    "archive that spark.archives names (docs/clusters.md)"
)


class SparkTaskError(RetryableError):
    """A Spark job failed outside the task's code: a worker died, an executor was lost."""


def job_error(error: Exception, where: str) -> CdcError:
    """Translate the error of a failed job.

    Args:
        error: one of `JOB_ERRORS`.
        where: the master, or the address of the Connect server.
    """
    text = str(error)
    log.debug("Spark's own words: %s", text)
    for pattern, explain in _SETUP:
        if match := pattern.search(text):
            fact, step = explain(
                next(group for group in (*match.groups(), match.group(0)) if group).strip().rstrip(".")
            )
            return EngineError(f"Spark at {where} cannot run the tasks: {fact}. Next: {step}.")
    if connection_lost(error):
        return SparkTaskError(
            f"Spark's JVM at {where} does not answer any more: it has ended or was killed. Next: look for the kernel's "
            "message if memory is short; another one is started, and the read is repeated."
        )
    if _AWAY.search(text):
        return SparkTaskError(
            f"Spark Connect at {where} does not answer any more. Next: look at the server and its log; a new session is "
            "begun with it, and the read is repeated."
        )
    return SparkTaskError(
        f"A Spark job at {where} broke: {root_cause(text) or type(error).__name__}. "
        "Next: look for a killed Python worker or lost executor in Spark's log; the read is repeated."
    )


def connection_lost(error: Exception) -> bool:
    """Whether the call broke off because its JVM has ended, or is about to."""
    return isinstance(error, LOST) or _CALL.match(str(error)) is not None


def session_gone(error: Exception) -> bool:
    """Whether the session itself has ended, so that a new one is needed."""
    return _GONE.search(str(error)) is not None


def root_cause(text: str) -> str:
    """The most informative line of a JVM error: Spark's deepest cause, or else the exception that Py4J names, or the first line."""
    lines = text.splitlines()
    causes = [line[2:] for line in lines[1:2] if line.startswith(": ")]
    causes += [line.partition("Exception: ")[2] for line in lines if "SparkException: " in line]
    found = causes[-1] if causes else lines[0] if lines else ""
    return found.partition(" Consider setting ")[0].rstrip(".")


_Explain = Callable[[str], tuple[str, str]]
_SETUP: tuple[tuple[re.Pattern[str], _Explain], ...] = (
    (_VERSIONS, lambda fact: (fact, "let spark.pyspark.python name a Python of the driver's version on the executors, or run the driver with theirs")),
    (_PROGRAM, lambda fact: (f"executors have no {fact}", "let spark.pyspark.python name their Python, of the driver's version")),
    (_MISSING, lambda fact: (f"an executor says {fact}", _LIBRARIES)),
    (_REMOVED, lambda _: ("its master has ended the application, because executors end as soon as they start", "look at an executor's stderr on the master's page; spark.executor.… may be what is wrong")),
    (_FETCH, lambda fact: (fact, "let executors reach the driver: spark.driver.host, spark.driver.port and spark.blockManager.port must pass the firewall")),
)  # fmt: skip
