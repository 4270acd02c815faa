"""A complete demonstration on one machine, `python -m demo`, behind `make run` and `make dev`.

`run` plays it once: a stand-in server with the sample shop, a live workload, the capture through Dagster in a separate
process (so that, as in production, it shares no interpreter with the server), and a summary that compares the lake with
the server. `dev` opens Dagster's web pages with sensors on. Both keep their data in `var/`, so that a second run
captures only what is new.
"""

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cdc_assets.cli.console import clear_errors, err, out, read_config
from demo.log import message_of
from demo.summary import compare, print_summary, totals
from mssql_standin import sample
from mssql_standin.control import StandIn
from mssql_standin.workload import Workload

CONFIGURATION = Path("resources/captures/shop.json")
STATE = Path("var")
LOG = STATE / "demo.log"
SNAPSHOT_DONE = "snapshot done"
"""Line that the capture process prints between its two jobs."""
_NOTIFICATION = re.compile(r"(Initial|Incremental) Snapshot: ")
"""Left out of the output: the lines about rounds contain the same information."""
_SETTLE_S = 20.0
"""Longest wait in seconds for a process that was asked to end."""

app = typer.Typer(
    help="Run a complete demonstration with a stand-in server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def step(text: str) -> None:
    """Print the next step of the demonstration."""
    out.print(f"[bold green]==>[/] {text}", soft_wrap=True)


@dataclass
class DemoServer:
    """The running stand-in with the sample database, and the environment of its clients."""

    server: StandIn
    workload: Workload
    stop: threading.Event
    thread: threading.Thread | None = None

    def environment(self) -> dict[str, str]:
        """Environment variables of processes that capture the shop."""
        return os.environ | {
            "CDC_CONFIG": str(CONFIGURATION),
            "CDC_DATABASE_PORT": str(self.server.port),
            "CDC_SHOP_PASSWORD": self.server.password,
            "DAGSTER_HOME": str(Path.cwd()),
            "PYTHONUNBUFFERED": "1",
            "VIRTUAL_ENV": sys.prefix,  # as activated: `dg` warns if it is another one than the project's
        }

    def start_workload(self, rate: float) -> None:
        """Start the workload with `rate` transactions per second."""
        self.thread = threading.Thread(target=self.workload.run, args=(rate, self.stop), daemon=True)
        self.thread.start()

    def stop_workload(self) -> int:
        """Stop the workload and wait until everything is captured; returns the number of transactions."""
        self.stop.set()
        if self.thread is not None:
            self.thread.join()
        self.server.agent.drain()
        return self.workload.steps


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM, and SIGHUP of a closed terminal, end the demo like Ctrl+C, so that no child process outlives it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def start_demo(seed: int) -> Iterator[DemoServer]:
    """Start the server; create the sample database if it does not exist yet."""
    with StandIn(directory=STATE / "standin", password="S" + secrets.token_urlsafe(18)) as server:
        if not server.execute("SELECT name FROM sys.databases WHERE name = ?", sample.DATABASE):
            step(f"Creating the sample database {sample.DATABASE}")
            server.execute(f"CREATE DATABASE [{sample.DATABASE}]")
            with server.connect(sample.DATABASE) as connection:
                sample.create(connection.execute)
            server.agent.drain()
        workload = Workload(server.connect(sample.DATABASE, autocommit=False), seed)
        yield DemoServer(server, workload, threading.Event())


@app.command()
@clear_errors
def run(
    seconds: Annotated[
        float, typer.Option(min=0, help="How many seconds the workload continues after the snapshot.")
    ] = 8.0,
    rate: Annotated[float, typer.Option(min=0.01, help="Transactions per second.")] = 25.0,
) -> None:
    """Capture the snapshot and changes of a busy shop through Dagster, then print a summary."""
    started = time.monotonic()
    step("Starting a stand-in SQL Server")
    with ended_by_signals(), start_demo(seed=time.time_ns()) as demo:
        os.environ.update(demo.environment())
        config = read_config(CONFIGURATION)
        before = totals(config)
        step(f"The server listens on {demo.server.host}:{demo.server.port}; starting {rate:g} transactions per second")
        demo.start_workload(rate)
        step("Capturing through Dagster, on a Spark session that starts meanwhile")
        capture_while_busy(demo, seconds)
        agrees = print_summary(config, compare(config, before, demo.server), demo.workload.steps, demo.server)
    out.print(
        f"[dim]Finished in {time.monotonic() - started:.0f} s. Run it again: it will capture only what is new. Web pages: make dev. Start over: make clean.[/]"
    )
    if not agrees:
        err.print("The lake and the server differ; see the numbers in red.")
        raise typer.Exit(1)


@app.command()
@clear_errors
def mysql(
    seconds: Annotated[
        float, typer.Option(min=0, help="How many seconds the workload continues after the snapshot.")
    ] = 8.0,
) -> None:
    """Capture a busy shop in a MariaDB of the demo's own with Debezium's MySQL connector, then print a summary."""
    from demo.mysql import play

    started = time.monotonic()
    with ended_by_signals():
        agrees = play(seconds)
    out.print(
        f"[dim]Finished in {time.monotonic() - started:.0f} s. Run it again: it will capture only what is new. Start over: make clean.[/]"
    )
    if not agrees:
        raise typer.Exit(1)


def capture_while_busy(demo: DemoServer, seconds: float) -> None:
    """Run the capture process; stop the workload some time after the snapshot; wait until the capture is idle."""
    command = [sys.executable, "-m", "demo.capture"]
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with (
        LOG.open("w") as log,
        subprocess.Popen(  # noqa: S603 - this interpreter, our module
            command, env=demo.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                log.write(line)
                if (message := message_of(line)) and not _NOTIFICATION.match(message):
                    out.print(f"    {message}", soft_wrap=True, markup=False)
                elif line.strip() == SNAPSHOT_DONE:
                    threading.Timer(seconds, demo.stop_workload).start()
        except BaseException:
            process.kill()
            raise
    demo.stop_workload()
    if process.returncode:
        err.print(f"The capture failed with exit code {process.returncode}. Its complete output is in {LOG}.")
        raise typer.Exit(1)


@app.command()
@clear_errors
def dev(
    rate: Annotated[float, typer.Option(min=0.01, help="Transactions per second.")] = 2.0,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of Dagster's web pages.")] = 3000,
) -> None:
    """Open Dagster's web pages with sensors on and a busy shop, until Ctrl+C."""
    step("Starting a stand-in SQL Server")
    with ended_by_signals(), start_demo(seed=time.time_ns()) as demo:
        demo.start_workload(rate)
        step(
            f"{rate:g} transactions per second; Dagster's web pages open on http://127.0.0.1:{port} (Ctrl+C ends everything)"
        )
        dg_dev = [sys.executable, "-m", "dagster_dg_cli.cli", "dev", "--no-check-yaml"]  # there is no defs.yaml
        command = [*dg_dev, "--host", "127.0.0.1", "--port", str(port)]
        with dagster_process(command, demo.environment()) as process:
            try:
                process.wait()
            except KeyboardInterrupt:
                step("Ending")
        demo.stop_workload()


@contextmanager
def dagster_process(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """`dg dev` in its own process group, so that all of its processes can be ended.

    SIGINT is restored first: a shell's background job starts with SIGINT ignored, and Dagster would copy that to
    SIGTERM.
    """
    process = subprocess.Popen(  # noqa: S603 - this interpreter, Dagster's own command line
        command,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_SETTLE_S)
            except subprocess.TimeoutExpired:
                err.print("Dagster did not end by itself.")
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
