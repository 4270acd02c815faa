"""What a broken job means: the set-up, which ends the run with the next step, or something that may pass."""

import pytest
from pyspark.errors import PySparkException

from cdc_assets.adapters.spark.failures import SparkTaskError, job_error, root_cause, session_gone
from cdc_assets.errors import EngineError

FAILED = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent "
    "failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.11 executor 1): {}\n\tat java.base/java.lang.Thread.run(Thread.java)"
)


@pytest.mark.parametrize(
    ("cause", "told", "step"),
    [
        (
            'java.io.IOException: Cannot run program "/no/python": error=2, No such file or directory',
            "executors have no /no/python",
            "spark.pyspark.python",
        ),
        (
            "org.apache.spark.SparkException: \nError from python worker:\n  Traceback (most recent call last):\n"
            "  ModuleNotFoundError: No module named 'pyarrow'",
            "No module named 'pyarrow'",
            "cdc-assets[tasks]",
        ),
        (
            "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
            "version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.",
            "different version: 3.12 than that in driver: 3.11",
            "spark.pyspark.python",
        ),
        ("Master removed our application: FAILED", "executors end as soon as they start", "stderr"),
        (
            "java.io.IOException: Failed to connect to /10.0.0.1:40001 for spark://10.0.0.1:40001/files/cdc_assets.zip",
            "Failed to connect to /10.0.0.1:40001",
            "spark.driver.host",
        ),
    ],
)
def test_set_up_that_cannot_work_ends_the_run_with_the_next_step(cause: str, told: str, step: str) -> None:
    error = job_error(PySparkException(FAILED.format(cause)), "spark://master:7077")
    assert isinstance(error, EngineError)
    assert not error.retryable
    fact, _, following = str(error).partition(" Next: ")
    assert told in fact
    assert "spark://master:7077" in fact
    assert step in following


@pytest.mark.parametrize(
    "cause",
    [
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Command exited with code 137",
        "",
    ],
)
def test_what_may_pass_is_repeated_and_told(cause: str) -> None:
    error = job_error(PySparkException(FAILED.format(cause)), "yarn")
    assert isinstance(error, SparkTaskError)
    assert error.retryable
    assert cause.rpartition("Exception: ")[2] in str(error)
    assert not session_gone(error)


def test_session_that_has_ended_is_reported_from_a_job_that_broke() -> None:
    assert session_gone(PySparkException("Job 3 cancelled because SparkContext was shut down"))
    assert session_gone(PySparkException("[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid. Session was closed."))


def test_connect_server_that_is_away_is_reported_and_its_session_given_up() -> None:
    away = PySparkException("<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n>")
    error = job_error(away, "sc://host:15002")
    assert isinstance(error, SparkTaskError)
    assert "sc://host:15002 does not answer any more" in str(error)
    assert session_gone(away)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("An error occurred.\n: org.apache.spark.SparkException: x must be > 0!\n\tat a.b", "x must be > 0!"),
        (
            "An error occurred.\n: java.lang.IllegalArgumentException: x is wrong\n\tat a.b",
            "java.lang.IllegalArgumentException: x is wrong",
        ),
        ("no server", "no server"),
        ("", ""),
    ],
)
def test_line_that_says_why_is_found_in_what_java_prints(text: str, cause: str) -> None:
    assert root_cause(text) == cause
