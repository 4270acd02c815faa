"""A capture of the changing server, and all that happens to it: runs that die, sleep and wake, errors, lags, rewritings."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

import psutil
from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.assembly.retention import make_retention
from cdc_assets.capture.capture import Capture, RunOptions
from cdc_assets.config.build import build_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.steps import listening
from cdc_assets.errors import CdcError, InvariantError
from cdc_assets.history.drift import Drift
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.beside import beside
from cdc_assets_tests.contract.histories.chronicle import DATABASES, SIGNALS, Chronicle, Table
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.streaming.law import state_of
from mssql_standin.control import StandIn
from mssql_standin.errors import SqlError

PLAYED: Final = {
    "work": 16,
    "stream": 6,
    "cut": 5,
    "sleep_and_wake": 4,
    "snapshot": 1,
    "cut_snapshot": 3,
    "signal": 2,
    "stop_signal": 1,
    "lag": 4,
    "alter": 4,
    "second_instance": 5,
    "drop_older_instance": 5,
    "again_under_the_same_name": 1,
    "clean_up": 1,
    "refuse": 3,
    "be_busy": 2,
    "go_offline": 2,
    "come_back": 3,
    "optimize": 3,
}
"""What a history is made of, and how often."""

KILLS: Final = {"kill_jvm": 5, "kill_worker": 5}
_KILL_ATTEMPTS: Final = 5
"""What comes on top of it where tasks run on Spark."""

_PASSING: Final = (229, 3948, 3961, 40549, 1205, 701)
"""Errors that pass by themselves."""


class Weather:
    """A capture and its weather.

    Args:
        server: with empty databases.
        properties: of the lake.
        seed: of the history.
        lag_s: longest time for which the capture job stands still, in seconds.
        spark: runs the tasks, in place of threads; then its processes are killed too.
        keyless_by: isolation mode of snapshots.
    """

    def __init__(
        self,
        server: StandIn,
        properties: Mapping[str, str],
        seed: int,
        lag_s: float = 1.0,
        spark: TaskRunner | None = None,
    ) -> None:
        self.server, self._lag_s = server, lag_s
        self._lags: list[threading.Timer] = []
        self._runner = spark or LocalRunner(2)
        self._played = PLAYED if spark is None else PLAYED | KILLS
        self._rng = random.Random(seed)  # noqa: S311 - a history that can be repeated
        self.chronicle = Chronicle(server, random.Random(-1 - seed))  # noqa: S311 - the same
        self._signals = count(1)
        self.kills = 0
        """Processes of Spark that were killed."""
        self._given = {
            "topic.prefix": "shop",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": "sa",
            "database.password": server.password,
            "database.names": ",".join(DATABASES),
            "driver.encrypt": "false",
            "table.exclude.list": r"dbo\.journal",
            "signal.data.collection": ",".join(f"{name}.dbo.{SIGNALS}" for name in DATABASES[:1]),
            "stream.idle.timeout.ms": "20",
            "poll.interval.ms": "10",
            "provide.transaction.metadata": str(self._rng.random() < 0.5).lower(),
            "snapshot.isolation.mode": self._rng.choice(["repeatable_read", "read_committed", "exclusive", "snapshot"]),
        } | dict(properties)
        for name in DATABASES:
            server.execute(f"ALTER DATABASE [{name}] SET ALLOW_SNAPSHOT_ISOLATION ON")

    @property
    def config(self) -> CaptureConfig:
        config = build_config(self._given)
        streaming = replace(config.streaming, max_iteration_transactions=2, slices=2, max_retries=1, retry_wait_s=0.02)
        return replace(config, streaming=streaming)

    @property
    def said(self) -> str:
        """All that was played."""
        return "\n".join([str(self._given), *self.chronicle.said])

    def _say(self, text: str) -> None:
        self.chronicle.said.append(f"-- {text}")

    # ---- the play ----------------------------------------------------------------------------------------------

    def play(self, steps: int, calm: Callable[[], object]) -> None:
        """A history of so many steps, and an end in good weather.

        Args:
            steps: how many.
            calm: ends the bad weather of the lake.
        """
        self.repair()
        acts = self._rng.choices(list(self._played), list(self._played.values()), k=steps)
        for act in acts:
            if act != "work":
                self._say(act)
            getattr(self.chronicle if act == "work" else self, act)()
        wanted = [act for act in acts if act in KILLS]
        for act in wanted[:1] * _KILL_ATTEMPTS:  # a run may end before it has such a process
            if not self.kills:
                getattr(self, act)()
        assert self.kills or not wanted, "no process of Spark was there when one was to be killed"
        self._say("fair weather")
        calm()
        self.come_back()
        self.server.faults.clear()
        self._end_lags()
        self.server.agent.drain()
        for table in self.chronicle.tables:
            self.alter_away_from_drift(table)
        for _ in range(3):
            self.repair()
        self.chronicle.touch_all()
        self.server.agent.drain()
        for _ in range(2):  # the first may find changes gone in a database in which nothing was committed since
            self.repair()

    def alter_away_from_drift(self, table: Table) -> None:
        """The newest instance captures what the table has."""
        if list(table.instances.values())[-1] == table.columns:
            return
        self.repair()
        if len(table.instances) > 1:
            self._drop_older(table)
        self._second(table)
        with self.chronicle.quiet():
            self.chronicle.work()
            self.server.agent.drain()
        self.repair()

    # ---- runs --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _capture(self) -> Iterator[Capture]:
        config = self.config
        with SqlServerSource(config.connection) as source:
            bulk = MssqlBulkSource(config.connection)
            yield Capture(config, source, bulk, self._runner, SystemClock(), RunOptions(retention=make_retention))

    def _attempt(self, action: Callable[[Capture], object]) -> bool:
        """Whether a run went well; what is told to a user is no fault here, but a bug is."""
        try:
            with self._capture() as capture:
                action(capture)
        except InvariantError:
            raise
        except CdcError as error:
            self._say(f"  ended: {type(error).__name__}: {str(error)[:300]}")
            return False
        return True

    def stream(self) -> None:
        """A run that reads what is new."""
        self._attempt(lambda capture: capture.stream())

    def repair(self) -> None:
        """Read what needs it again, then stream; both as often as needed to see the result."""

        def run(capture: Capture) -> None:
            known = capture.state().tables
            own = [table.table for table in self.chronicle.tables if table.table.database not in self.chronicle.offline]
            stopped = [name for name in own if name in known and not known[name].streams]
            capture.snapshot()
            if stopped:
                self._say(f"  read again: {', '.join(map(str, stopped))}")
                capture.snapshot(stopped)
            capture.stream()

        self._attempt(run)

    def cut(self) -> None:
        """A run that dies at a random step."""
        self._die(self.stream)

    def snapshot(self) -> None:
        """Tables are read again, while others write."""
        chosen = self._rng.sample(self.chronicle.tables, 2)
        with self._writing():
            self._attempt(lambda capture: capture.snapshot([table.table for table in chosen]))

    def cut_snapshot(self) -> None:
        """Tables are read again by a run that dies."""
        self._die(self.snapshot)

    def _die(self, run: Callable[[], None]) -> None:
        step = self._rng.randrange(1, 14)
        self._say(f"  at step {step}")
        with listening(cut_after(step)), contextlib.suppress(PowerCutError):
            run()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Transactions beside."""

        def write(over: threading.Event) -> None:
            for _ in range(self._rng.randrange(1, 6)):
                self.chronicle.work()
                if over.wait(0.01):
                    return

        with beside(write):
            yield

    def sleep_and_wake(self) -> None:
        """A run falls asleep at a random step; another one does its work and others; then it wakes."""
        left, asleep, wake = [self._rng.randrange(1, 10)], threading.Event(), threading.Event()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                self.stream()
            except BaseException as failure:  # noqa: BLE001 - raised again in the test's own thread
                failures.append(failure)

        sleeper = threading.Thread(target=run)

        def listen(name: str) -> None:
            if threading.current_thread() is sleeper:
                left[0] -= 1
                if left[0] == 0:
                    self._say(f"  asleep at {name}")
                    asleep.set()
                    wake.wait(60)

        with listening(listen):
            sleeper.start()
            while sleeper.is_alive() and not asleep.wait(0.01):
                pass
            if asleep.is_set():
                for _ in range(self._rng.randrange(1, 4)):
                    act = self._rng.choice(
                        ["work", "stream", "stream", "alter", "second_instance", "cut", "go_offline"]
                    )
                    self._say(f"  meanwhile {act}")
                    getattr(self.chronicle if act == "work" else self, act)()
                self.stream()
            self._say("  awake")
            wake.set()
            sleeper.join(60)
        assert not sleeper.is_alive(), "the woken run does not end"
        if failures:
            raise failures[0]

    def kill_jvm(self) -> None:
        """Spark's JVM dies while a run reads."""
        self._kill(lambda process: "java" in process.name())

    def kill_worker(self) -> None:
        """One of Spark's Python workers dies while a run reads."""
        self._kill(lambda process: "pyspark.worker" in process.cmdline())

    def _kill(self, chosen: Callable[[psutil.Process], bool]) -> None:
        wait = self._rng.uniform(0, 0.5)

        def kill(over: threading.Event) -> None:
            over.wait(wait)
            while not self._killed(chosen) and not over.wait(0.02):
                pass

        self.chronicle.work()
        self.server.agent.drain()
        with beside(kill):
            self._rng.choice([self.stream, self.snapshot])()

    def _killed(self, chosen: Callable[[psutil.Process], bool]) -> bool:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if chosen(process):
                    process.kill()
                    self._say(f"  kills {process.pid}")
                    self.kills += 1
                    return True
        return False

    # ---- signals -----------------------------------------------------------------------------------------------

    def signal(self) -> None:
        """An incremental snapshot is asked for, and begun."""
        if DATABASES[0] in self.chronicle.offline:
            return
        name = self._rng.choice(["orders", "lines", "notes"])
        self._send("execute-snapshot", f'{{"data-collections": ["{DATABASES[0]}.dbo.{name}"]}}')
        with self._writing():
            self._rng.choice([self.stream, self.cut])()

    def stop_signal(self) -> None:
        """All incremental snapshots are to end."""
        if DATABASES[0] not in self.chronicle.offline:
            self._send("stop-snapshot", "{}")

    def _send(self, kind: str, data: str) -> None:
        statement = f"INSERT INTO dbo.{SIGNALS} VALUES ('{next(self._signals)}', '{kind}', '{data}')"
        self.chronicle.execute(statement, DATABASES[0])

    # ---- the server --------------------------------------------------------------------------------------------

    def lag(self) -> None:
        """The capture job stands still for a while, beside whatever comes next."""
        self.server.agent.pause()
        wait = self._rng.uniform(0, self._lag_s)
        self._say(f"  for {wait:.2f} s")
        timer = threading.Timer(wait, self.server.agent.resume)
        timer.daemon = True
        self._lags.append(timer)
        timer.start()

    def _end_lags(self) -> None:
        for timer in self._lags:
            timer.cancel()
            timer.join()  # it may have begun, and needs the server
        self.server.agent.resume()

    def _online(self) -> list[Table]:
        return [table for table in self.chronicle.tables if table.table.database not in self.chronicle.offline]

    def _chosen(self) -> Table | None:
        tables = self._online()
        return self._rng.choice(tables) if tables else None

    def alter(self) -> None:
        """A table gets a column more or less."""
        if (table := self._chosen()) is not None:
            self.chronicle.alter(table)

    def second_instance(self) -> None:
        """The second capture instance that the capture asks for."""
        table = self._chosen()
        if table is not None and len(table.instances) == 1:
            self._second(table)

    def _second(self, table: Table) -> None:
        statement = self._printed(table, lambda drift: drift.remedy)
        if statement:
            self.chronicle.enable(table, statement)

    def drop_older_instance(self) -> None:
        """The older instance that the capture says is read."""
        table = self._chosen()
        if table is not None and len(table.instances) == 2:
            self._drop_older(table)

    def _drop_older(self, table: Table) -> None:
        statement = self._printed(table, lambda drift: drift.removal)
        if statement:
            self.chronicle.disable(table, next(iter(table.instances)), statement)

    def _printed(self, table: Table, choose: Callable[[Drift], str | None]) -> str:
        """The T-SQL that doctor prints; none while it only says what the capture waits for."""
        try:
            with SqlServerSource(self.config.connection) as source:
                drifts = CaptureOverview(self.config, source).drifts()
        except CdcError as error:
            self._say(f"  drifts: {error}")
            return ""
        found = next((choose(drift) or "" for drift in drifts if drift.table == table.table), "")
        return found if found.startswith("EXEC") else ""

    def again_under_the_same_name(self) -> None:
        """Capture of a table ends and begins anew at once, under the default name: changes may be lost."""
        table = self._chosen()
        if table is not None:
            self.chronicle.hurt.add(table.table)
            for instance in list(table.instances):
                self.chronicle.disable(table, instance)
            self.chronicle.enable(table)

    def clean_up(self) -> None:
        """The clean-up job takes a table's changes away, read or not."""
        table = self._chosen()
        if table is not None:
            self.chronicle.hurt.add(table.table)
            for instance in table.instances:
                with contextlib.suppress(SqlError):  # an instance may begin after all that is captured
                    self.chronicle.execute(
                        "DECLARE @low binary(10) = sys.fn_cdc_get_max_lsn(); EXEC sys.sp_cdc_cleanup_change_table "
                        f"@capture_instance = N'{instance}', @low_water_mark = @low",
                        table.table.database,
                    )

    def refuse(self) -> None:
        """An error that passes by itself meets the reads of a table."""
        table, number = self._rng.choice(self.chronicle.tables), self._rng.choice(_PASSING)
        what = self._rng.choice(["_CT]", f"[{table.table.table}]"])
        self._say(f"  {number} at {what}")
        self.server.faults.error(number, matching=what, times=self._rng.randrange(1, 4))
        self._rng.choice([self.stream, self.cut, self.snapshot])()
        self.server.faults.clear()

    def be_busy(self) -> None:
        """A connection is lost in mid-read."""
        self.server.faults.drop(matching="_CT]", after_rows=self._rng.randrange(3))
        self.stream()
        self.server.faults.clear()

    def go_offline(self) -> None:
        """A database goes away, and everybody who uses it."""
        if not self.chronicle.offline:
            with self.chronicle.quiet():
                name = self._rng.choice(DATABASES)
                self.server.execute(f"ALTER DATABASE [{name}] SET OFFLINE WITH ROLLBACK IMMEDIATE")
                self.chronicle.offline.add(name)

    def come_back(self) -> None:
        """It is there again."""
        for name in list(self.chronicle.offline):
            self.server.execute(f"ALTER DATABASE [{name}] SET ONLINE")
            self.chronicle.offline.discard(name)

    # ---- the lake ----------------------------------------------------------------------------------------------

    def optimize(self) -> None:
        """Somebody rewrites the files of the whole lake while a capture runs."""
        lake = self.config.lake
        if not Path(lake.path).is_dir():
            self.stream()
            return

        def rewrite(over: threading.Event) -> None:
            while not over.is_set():
                for log in Path(lake.path).glob("*/_delta_log"):
                    with contextlib.suppress(Exception):  # it may be refused: that is the other's trouble
                        DeltaTable(str(log.parent)).optimize.compact()
                time.sleep(0.01)

        with beside(rewrite):
            self.stream()

    def state(self) -> str:
        """For a message."""
        return "\n".join(
            f"{entry.table} {entry.status} {entry.position} {entry.gaps} {entry.reason}"
            for entry in state_of(self.config).tables.values()
        )
