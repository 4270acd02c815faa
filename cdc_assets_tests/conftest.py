"""Fixtures for all tests."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import settings

from cdc_assets.core.outages import forget_lines
from cdc_assets.core.process_settings import set_up_process
from cdc_assets.core.state_folder import STATE_VARIABLE, choose_state_folder
from cdc_assets_tests.quick_tables import quick_tables
from cdc_assets_tests.sources import keeping_trees

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

    from cdc_assets.adapters.spark.runner import SparkTaskRunner
    from cdc_assets.defs.spark import SparkResource

_NUMBERS = count()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; Dagster copies that to SIGTERM
    signal.signal(signal.SIGINT, signal.default_int_handler)
_MEMORY, _ROOM = Path("/dev/shm"), 4 * 1024**3  # noqa: S108 - pytest makes a private folder there
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)  # a fifth of all time went into many small files on a disk
set_up_process()  # and its children
# delta-rs in this process and its children: threads that wake each other took a seventh of the processor time of two
os.environ.setdefault("TOKIO_WORKER_THREADS", "1")
# a test's JVM ends before the optimizing compiler pays: without it one takes 40 % less; and users' own sessions in tests start from
# the archive of classes that our own use, for half of what is left
_JAVA = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable", "-Xlog:all=error:stderr"]
_JAVA += [f"-XX:SharedArchiveFile={archive}" for archive in Path(sys.prefix).glob("spark-*.jsa")]
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(_JAVA))
gc.disable()  # until all tests are known: nothing of them is garbage, and looking through them took a fifth of that time
os.environ.pop("COLUMNS", None)  # pytest-xdist tells its workers a width of 80; tables are as wide as in a pipe

settings.register_profile("no deadline", deadline=None)  # a loaded machine is no fault; `timeout` ends what hangs
settings.load_profile("no deadline")


QUICK = (
    "contract/test_adoption.py",
    "contract/test_databases.py",
    "contract/test_follow.py",
    "contract/test_names_again.py",
    "contract/test_restored.py",
    "contract/test_schema_changes.py",
    "contract/test_several_databases.py",
    "contract/test_until_now.py",
    "unit/capture/",
    "unit/connectors/",
    "unit/incremental/",
    "unit/mirror/",
    "unit/overview/",
    "unit/publish/",
    "unit/reconcile/",
    "unit/retention/",
    "unit/shared/",
    "unit/signals/",
    "unit/snapshot/",
    "unit/streaming/",
)
"""Where tests ask what a commit means, and not whether delta-rs makes it: they play on quick tables, which take half the time."""


def pytest_configure() -> None:
    """Each worker keeps to one processor if there are more workers than processors.

    A test waits for the server in its own process, and threads that take turns do so on one processor for a tenth less of its time.
    """
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
    processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []  # Linux alone has it
    if processors and workers > len(processors):
        os.sched_setaffinity(0, {processors[int(worker.removeprefix("gw")) % len(processors)]})


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "Scheduling | None":
    """Files of tests stay together, and those with Spark."""
    from cdc_assets_tests.workers import FilesAndSpark

    return FilesAndSpark(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what plays on quick tables, and what of combinations is long."""
    quick = tuple(f"{Path(__file__).parent}{os.sep}{name}" for name in QUICK)
    for item in items:
        if str(item.path).startswith(quick) and item.get_closest_marker("delta_rs") is None:
            item.add_marker("quick")
    _leave_each_value_once(items)


def _leave_each_value_once(items: list[pytest.Item]) -> None:
    """Of a test that is marked `combinations`, each value of each parameter is in the default run, and the others are long.

    Combinations come in an order without a rule, so that a value meets various others and not the first of each. Values need not be
    hashable; all combinations hold the same objects.
    """
    seen: set[tuple[str, str, int]] = set()
    combinations = [item for item in items if item.get_closest_marker("combinations") is not None]
    for item in sorted(combinations, key=lambda item: crc32(item.nodeid.encode())):
        if isinstance(item, pytest.Function) and item.get_closest_marker("long") is None:
            values = {(item.nodeid.partition("[")[0], name, id(value)) for name, value in item.callspec.params.items()}
            if values <= seen:
                item.add_marker("long")
            seen |= values


def pytest_collection_finish() -> None:
    """No later collection of garbage looks through modules and tests, which stay, and there are fewer of them."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.fixture(scope="session")
def spark_resource() -> "Iterator[SparkResource]":
    """One small local Spark for the whole test run."""
    from cdc_assets.adapters.spark.session import stop_spark
    from cdc_assets.defs.spark import SparkResource

    yield SparkResource(master="local[2]")
    stop_spark()


@pytest.fixture(scope="session")
def runner(spark_resource: "SparkResource") -> "SparkTaskRunner":
    """The task runner of that Spark."""
    return spark_resource.runner()


@pytest.fixture(scope="module")
def parsed_once() -> Iterator[None]:
    """Sources are parsed once for all tests of a module."""
    with keeping_trees():
        yield


@pytest.fixture(scope="session", autouse=True)
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of cached data: the first is that of fixtures which outlive a test, and of their processes."""
    folder = tmp_path_factory.mktemp("states")
    _remember_in(folder / "session")
    return folder


@pytest.fixture(autouse=True)
def state_folder(states: Path) -> None:
    """No test uses that of the project, or one that the test before it has chosen; it is made if something is written."""
    _remember_in(states / str(next(_NUMBERS)))


def _remember_in(folder: Path) -> None:
    """Cached data of this process, and of those that it starts."""
    os.environ[STATE_VARIABLE] = str(folder)
    choose_state_folder(folder)


@pytest.fixture(autouse=True)
def quick_or_delta_rs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests that are marked `quick` play on quick tables; with `CDC_DELTA_RS` on delta-rs, as all others."""
    is_quick = request.node.get_closest_marker("quick") is not None and "CDC_DELTA_RS" not in os.environ
    with quick_tables() if is_quick else nullcontext():
        yield


@pytest.fixture(autouse=True)
def log_lines() -> None:
    """No test misses a line because one before it has logged the same."""
    forget_lines()
