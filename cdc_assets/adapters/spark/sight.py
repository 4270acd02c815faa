"""What of a job is seen from outside: its name on Spark's pages, and where its tasks ran.

*Names.* Spark shows the description and the group that the calling thread has set, so both are set around each job. What a user's
own code had set in that thread is put back after it. A server of Spark Connect shows tags instead.

*Where.* Spark's own count of tasks is only weakly consistent, and a client of Spark Connect has none. So each task says itself
in which process it runs, and its answer travels with its result.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from pyspark import TaskContext
from pyspark.sql import SparkSession

from cdc_assets.adapters.spark.executors import context_of
from cdc_assets.core.jobs import Job
from cdc_assets.core.ran_on import RanOn

_SET_BY_GROUP = ("spark.job.description", "spark.jobGroup.id", "spark.job.interruptOnCancel")


class TaskLocation(NamedTuple):
    """Where a task ran.

    Args:
        host: name of the machine.
        process: id of the process there.
        stage: Spark's number of its stage; -1 if it is not known.
        attempt: how often Spark had started the task before.
    """

    host: str
    process: int
    stage: int = -1
    attempt: int = 0


def own_location() -> TaskLocation:
    """Where this code runs, in a task or in the driver."""
    task = TaskContext.get()
    numbers = (task.stageId(), task.attemptNumber()) if task is not None else (-1, 0)
    return TaskLocation(socket.gethostname(), os.getpid(), *numbers)


def application_of(session: SparkSession, address: str) -> RanOn:
    """The application that runs a session's jobs, without any job yet.

    Args:
        address: of the Connect server, if it is a session of one.
    """
    context = context_of(session)
    if context is None:
        return RanOn(address, session.conf.get("spark.app.id", "") or "")
    return RanOn(context.master, context.applicationId, context.uiWebUrl or "")


@contextmanager
def named(session: SparkSession, job: Job) -> Iterator[None]:
    """A block whose jobs of this thread have a name: which capture, what for, which window, which tables."""
    context = context_of(session)
    if context is None:
        tag = str(job).replace(",", "")  # it separates tags
        session.addTag(tag)
        try:
            yield
        finally:
            with suppress(Exception):  # the session has ended
                session.removeTag(tag)
        return
    before = {key: context.getLocalProperty(key) for key in _SET_BY_GROUP}
    context.setJobGroup(f"{job.capture or 'cdc-assets'} {job.kind}", str(job))
    try:
        yield
    finally:
        with suppress(Exception):  # the session has ended, and its properties with it
            for key, value in before.items():
                context.setLocalProperty(key, value)
