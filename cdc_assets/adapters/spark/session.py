"""Spark sessions: a local one by default, a cluster or Spark Connect by configuration, on first use."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_assets.adapters.spark import jvm, preflight
from cdc_assets.adapters.spark.address import driver_address
from cdc_assets.adapters.spark.borrowed import active_session
from cdc_assets.adapters.spark.connect import abandon, limit_repetitions, wait_until_ready
from cdc_assets.adapters.spark.early import EarlyRunner
from cdc_assets.adapters.spark.environment import environment_of
from cdc_assets.adapters.spark.executors import ExecutorWatch, context_of, slots, wait_for_executors
from cdc_assets.adapters.spark.failures import (
    JOB_ERRORS,
    SparkTaskError,
    connection_lost,
    job_error,
    root_cause,
    session_gone,
)
from cdc_assets.adapters.spark.jobs import cancel_own, cancelled_with_run, map_indexes
from cdc_assets.adapters.spark.jvm import stop_spark as stop_spark
from cdc_assets.adapters.spark.launch import Launch
from cdc_assets.adapters.spark.properties import PATIENT, QUICK, default_class_archive, properties_of
from cdc_assets.adapters.spark.runner import SparkTaskRunner
from cdc_assets.adapters.spark.settings import SparkSettings, is_local
from cdc_assets.adapters.spark.shipping import code_archive, ship_code
from cdc_assets.adapters.spark.unlisted import secrets_unlisted
from cdc_assets.core.interruption import in_thread
from cdc_assets.errors import CdcError, ConfigurationError

_JAVA = "check Java (17 or newer) and the address, or leave Spark out: --local, or spark.cdc.threads true"
_DIES_S = 5.0
"""Seconds in which a JVM has ended whose connections are broken; one that has not lives on."""

_UNANSWERED = "JAVA_GATEWAY_EXITED"


@dataclass
class LazySession:
    """A Spark session that is started on first use: a capture with nothing to read never starts one.

    Args:
        settings: choice of Spark.
        driver_memory: heap of the driver's JVM.
        class_archive: AppCDS archive of that JVM; used if the file exists.
        shared: whether others than the tasks of `runner` may get the session.
        name: name of the application in Spark's pages, unless `spark.app.name` gives another.
        given: gives somebody else's session, which is used in place of one that is made here.
        launch: of its JVM; whoever ends it needs no session.
    """

    settings: SparkSettings = field(default_factory=SparkSettings)
    driver_memory: str = "1g"
    class_archive: str = field(default_factory=default_class_archive)
    shared: bool = False
    name: str = "cdc-assets"
    given: Callable[[], SparkSession] | None = None
    launch: Launch = field(default_factory=Launch)
    _session: SparkSession | None = None
    _watch: ExecutorWatch | None = None
    _starts: threading.RLock = field(default_factory=threading.RLock)  # it may be requested by several threads at once
    _worked: bool = False
    _own: bool = True  # whether the session was made here: then it is ours to stop
    _early: EarlyRunner = field(init=False)

    def __post_init__(self) -> None:
        """Pack our code for executors now: a session may start hours later, when another version may be installed here."""
        if not self.settings.local:
            code_archive()
        self._early = EarlyRunner(self.settings, self.runner, self._is_there, self.launch)

    def _is_there(self) -> bool:
        """Whether a session is there, made here or by another run of this process, which is then used."""
        return self._session is not None or (not self.settings.remote and jvm.has_context(waits=False))

    def session(self, *java: str) -> SparkSession:
        """The session, started with these options of Java unless it runs already; another one if it has ended.

        Raises:
            ConfigurationError: Spark cannot be started, or not be reached.
            EngineError: no executor comes, or executors cannot run the tasks.
            SparkTaskError: it failed while it was started.
        """
        with self._starts:
            if self._session is not None and not _ended(self._session):
                return self._session
            self._forget(self._session)
            session = self._again(*java) if self._worked else self._first(*java)
            self._session = session
            if not _is_local(session):
                try:
                    self._prepare(session)
                except BaseException:  # a request to end, too
                    self._forget(session)  # or the next attempt would get the same one, which is not prepared
                    raise
            self._worked = True
            return session

    def _first(self, *java: str) -> SparkSession:
        """The first session, begun once more if its JVM ended meanwhile: it may have been killed, also before it could answer."""
        try:
            return self._started(*java)
        except ConfigurationError as error:
            if self.settings.remote or self.launch.is_ended:
                raise
            if _UNANSWERED not in str(error) and not jvm.forget_if_gone(_DIES_S):
                raise
            return self._started(*java)

    def _again(self, *java: str) -> SparkSession:
        """Another session after one that was lost: what has worked is not configured wrongly, so it may come back."""
        try:
            return self._started(*java)
        except ConfigurationError as error:
            raise SparkTaskError(
                f"Spark at {self.settings.address} has gone: {error} The read is repeated once it is back."
            ) from error

    def _started(self, *java: str) -> SparkSession:
        settings = self.settings
        try:  # in the main thread pyspark would put its own handler of SIGINT in the place of ours, or of Dagster's
            if settings.remote:
                in_thread(lambda: wait_until_ready(settings.remote))
            session = in_thread(lambda: self._borrowed_or_made(*java))
        except ImportError as error:
            raise ConfigurationError(
                "Spark Connect",
                settings.address,
                "the packages of its client",
                f'pip install "cdc-assets[connect]" ({error})',
            ) from error
        except (PySparkException, Py4JError, TimeoutError, *jvm.LOST) as error:
            raise ConfigurationError(
                "Spark session", settings.address, "a reachable Spark",
                f"{'check the server' if settings.remote else _JAVA} ({root_cause(str(error)) or type(error).__name__})",
            ) from error  # fmt: skip
        if settings.remote and self._own:
            limit_repetitions(session)
        return session

    def _borrowed_or_made(self, *java: str) -> SparkSession:
        with environment_of(self.settings):
            found = self.given() if self.given is not None else active_session(self.settings)
            self._own = found is None
            return found or self._made(*java)

    def _made(self, *java: str) -> SparkSession:
        settings = self.settings
        own = driver_address(settings.address)
        address = {"spark.driver.host": own} if own and not settings.remote else {}
        properties = {"spark.app.name": self.name} | address | self.properties(*java)
        if settings.remote:  # `getOrCreate` would give and change what a user has made, be it of another server
            return SparkSession.builder.remote(settings.remote).config(map=properties).create()
        properties |= {"spark.master": settings.master}
        threading.Thread(target=_import_early, name="spark-imports", daemon=True).start()
        with secrets_unlisted(properties) as listed, self.launch.starting(), jvm.started_here():
            context = SparkContext.getOrCreate(SparkConf().setAll(list(listed.items())))
            if java and settings.local:  # tasks wait: their workers start while the session is made of its context
                threading.Thread(target=_warm, args=(context,), name=jvm.WORKERS, daemon=True).start()
            return SparkSession.builder.config(map=dict(listed)).getOrCreate()

    def _prepare(self, session: SparkSession) -> None:
        """Send our code to the executors, wait until they are there, and ask them what they have."""
        context = context_of(session)
        self._watch = ExecutorWatch(
            session, self.settings.executor_timeout_s, self.settings.address, lambda: cancel_own(session)
        )
        with self.watched(), cancelled_with_run(session):
            ship_code(session)
            preflight.require_modules(map_indexes(session, preflight.probe(), 1), self.settings.address)
            if context is not None:
                wait_for_executors(context)
        preflight.log_facts(self._ask(session), self.settings.address)

    def _ask(self, session: SparkSession) -> list[preflight.Facts]:
        with self.watched(), cancelled_with_run(session):
            found = map_indexes(session, preflight.probe(), self._slots(session))
        preflight.require_modules(found, self.settings.address)
        if not _is_local(session):
            preflight.require_shipped_code(found, self.settings.address, code_archive().name)
        return found

    def inspect(self) -> list[preflight.Facts]:
        """Facts about each slot of the executors.

        Raises:
            CdcError: Spark cannot be started, or it cannot run the tasks.
        """
        return self._ask(self.session())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A block that waits for a job.

        Raises:
            EngineError: Spark's setup cannot run the tasks.
            SparkTaskError: the job failed for a transient reason.
        """
        session = self._session
        try:
            if self._watch is None:
                yield
            else:
                with self._watch.watching():
                    yield
        except Exception as raised:
            error = _of_spark(raised, session)
            if error is None:
                raise
            if session_gone(error) or jvm.forget_if_gone(_DIES_S if connection_lost(error) else 0.0):
                self._forget(session)
            raise job_error(error, self.settings.address) from None  # a page of Java; `failures` has taken what it says

    def _forget(self, session: SparkSession | None) -> None:
        """Drop a session that has ended, so that a new one can be created; not one that another thread has created since."""
        with self._starts:
            if self._session is not session:
                return
            self._session = self._watch = None
        jvm.forget_if_gone()
        if session is not None and self._own:
            with suppress(Exception):  # it has ended
                abandon(session) if self.settings.remote else session.stop()

    def properties(self, *java: str) -> dict[str, str]:
        """Spark properties in force, with further options of Java; for Connect only those that a session may set."""
        return properties_of(self.settings, self.driver_memory, self.class_archive, *java)

    def parallelism(self, *java: str) -> int:
        """Tasks that run at once, without starting a session where the settings say it; read again for each window."""
        if known := self._known_slots():
            return known
        session = self.session(*java)
        with self.watched(), cancelled_with_run(session):
            return slots(session)

    def _slots(self, session: SparkSession) -> int:
        return self._known_slots() or slots(session)

    def _known_slots(self) -> int:
        """Their number as the settings tell it, or 0; a session that others have made has its own."""
        return self.settings.slots() if self._own else self.settings.tasks

    def runner(self) -> SparkTaskRunner:
        """The task runner of this session; started by it, the JVM compiles quickly rather than well."""
        java = PATIENT if self.shared else QUICK
        address = self.settings.address
        return SparkTaskRunner(lambda: self.session(*java), lambda: self.parallelism(*java), self.watched, address)

    def early_runner(self) -> EarlyRunner:
        """The same, by the rule of `early`; one for all that runs in this process, so that all know of the start."""
        return self._early


def _import_early() -> None:
    """Import, while the JVM starts, what pyspark imports before it first calls it: a quarter of a second where pandas is there."""
    with suppress(Exception):  # then pyspark tells it
        import_module("pyspark.testing.utils")


def _warm(context: SparkContext) -> None:
    """Have the workers of a local session start, and import what tasks need."""
    with suppress(Exception):  # the first job tells it
        slots = context.defaultParallelism
        context.setJobDescription("cdc-assets: start of workers")
        context.parallelize(range(slots), slots).map(str).collect()


def _is_local(session: SparkSession) -> bool:
    """As the session itself says: one that others have made may be of another kind than is configured."""
    context = context_of(session)
    return context is not None and is_local(context.master)


def _of_spark(error: Exception, session: SparkSession | None) -> Exception | None:
    """An error of a job, if it is one of Spark's. When another thread has let go of a JVM that was lost, pyspark fails at what it
    knew of it: `'NoneType' object has no attribute 'setCallSite'`."""
    if isinstance(error, JOB_ERRORS):
        return error
    if isinstance(error, CdcError) or session is None or not _ended(session):
        return None
    return ConnectionError(str(error))


def _ended(session: SparkSession) -> bool:
    """Whether it is known to have; of a session of Spark Connect only if it was closed here."""
    context = context_of(session)
    return bool(getattr(session, "is_stopped", False)) if context is None else jvm.has_ended(context)
