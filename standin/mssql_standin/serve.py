"""A server started by hand: sample, workload, how to connect, a clean stop."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from mssql_standin import sample
from mssql_standin.control import StandIn
from mssql_standin.wire.prelogin import Encryption
from mssql_standin.workload import Workload


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for; see `__main__`."""

    port: int = 0
    databases: tuple[str, ...] = ()
    sample: bool = False
    workload_rate: float = 0.0
    seed: int = 1
    password: str | None = None
    directory: Path | None = None
    encryption: Encryption = Encryption.NOT_SUPPORTED
    capture_latency_s: float = 0.0


def serve(options: Options, stop: threading.Event | None = None, console: Console | None = None) -> None:
    """Run a server until SIGINT, SIGTERM or `stop`.

    Args:
        options: of the server.
        stop: ends it from another thread; signals set it too.
        console: where to tell how to connect.
    """
    stop, console = stop or threading.Event(), console or Console()
    with (
        _signals(stop),
        StandIn(
            databases=options.databases,
            encryption=options.encryption,
            port=options.port,
            directory=options.directory,
            password=options.password,
        ) as server,
    ):
        if options.sample:
            _create_sample(server)
        server.agent.latency_s = options.capture_latency_s
        _tell(console, server, options)
        with _workload(server, options, stop):
            while not stop.wait(1.0):
                pass
        console.print("The stand-in stops.")


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM set the event; elsewhere than in the main thread signals are somebody else's business."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _create_sample(server: StandIn) -> None:
    """The sample database, unless the directory has it already."""
    if server.execute("SELECT name FROM sys.databases WHERE name = ?", sample.DATABASE):
        return
    server.execute(f"CREATE DATABASE [{sample.DATABASE}]")
    with server.connect(sample.DATABASE) as connection:
        sample.create(connection.execute)


@contextlib.contextmanager
def _workload(server: StandIn, options: Options, stop: threading.Event) -> Iterator[None]:
    """The workload in a thread of its own; its failure stops the server and is raised."""
    if not (options.sample and options.workload_rate > 0):
        yield
        return
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with server.connect(sample.DATABASE, autocommit=False) as connection:
                Workload(connection, options.seed).run(options.workload_rate, stop)
        except Exception as failure:  # noqa: BLE001 - raised again in the main thread
            failures.append(failure)
            stop.set()

    thread = threading.Thread(target=run, name="standin-workload")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def _tell(console: Console, server: StandIn, options: Options) -> None:
    """How to connect; each line whole however narrow the screen, since it is there to be copied."""
    database = sample.DATABASE if options.sample else next(iter(options.databases), "master")
    place = f"{server.host}:{server.port};databaseName={database}"
    lines = {
        "server": f"{server.host},{server.port}",
        "login": server.user,
        "password": "(as given)" if options.password else server.password,
        "database": database,
        "jdbc": f"jdbc:sqlserver://{place};encrypt=false",
        "odbc": f"Server={server.host},{server.port};Database={database};UID={server.user};Encrypt=no",
    }
    if server.certificate is not None:
        lines["certificate"] = str(server.certificate)
    console.print("SQL Server stand-in", style="bold")
    for name, value in lines.items():
        console.print(Text(f"{name:<12}{value}"), soft_wrap=True)
