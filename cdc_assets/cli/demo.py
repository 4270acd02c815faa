"""`cdc-assets demo`: the whole story on one machine, behind `make run` and `make dev`.

`run` plays it once: a stand-in server with the sample shop, a live workload, the capture in a process of its own through
Dagster (its process shares no interpreter with the server, as in life), and a summary that compares the lake with the server.
`dev` opens Dagster's pages with sensors on. Both keep their data in `var/`, so that a second run captures what is new.
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
from typing import TYPE_CHECKING, Annotated

import typer

from cdc_assets.cli.console import clear_errors, err, needs_demo, out, read_config
from cdc_assets.cli.demo_summary import compare, print_summary, totals

if TYPE_CHECKING:  # the extra `demo`: a command line lists this one without it
    from cdc_assets.standin.control import StandIn
    from cdc_assets.standin.workload import Workload

CONFIGURATION = Path("resources/captures/shop.json")
STATE = Path("var")
LOG = STATE / "demo.log"
SNAPSHOT_DONE = "snapshot done"
"""What the capture's process says between its two jobs."""
_MESSAGE = re.compile(r"\S+ \S+ \S+ - dagster - (INFO|WARNING|ERROR|CRITICAL) - \S+ - \S+ - (\S+ - )?(?P<text>.*)")
"""A line of Dagster's console log that is no mere engine event."""
_NOTIFICATION = re.compile(r"(Initial|Incremental) Snapshot: ")
"""What they tell is in the lines about rounds already."""
_SETTLE_S = 20.0
"""Longest wait for a process that was asked to end."""

app = typer.Typer(help="Play the whole story with a stand-in server.", no_args_is_help=True)


def step(text: str) -> None:
    """Say what happens now."""
    out.print(f"[bold green]==>[/] {text}", soft_wrap=True)


@dataclass
class Shop:
    """The running stand-in with the sample database, and how others find it."""

    server: "StandIn"
    workload: "Workload"
    stop: threading.Event
    thread: threading.Thread | None = None

    def environment(self) -> dict[str, str]:
        """Environment for processes that capture the shop."""
        return os.environ | {
            "CDC_CONFIG": str(CONFIGURATION),
            "CDC_DATABASE_PORT": str(self.server.port),
            "CDC_SHOP_PASSWORD": self.server.password,
            "DAGSTER_HOME": str(Path.cwd()),
            "PYTHONUNBUFFERED": "1",
            "PYTHONWARNINGS": "ignore:Function `dev_command` is superseded",
        }

    def open_doors(self, rate: float) -> None:
        """Start the workload: `rate` transactions a second."""
        self.thread = threading.Thread(target=self.workload.run, args=(rate, self.stop), daemon=True)
        self.thread.start()

    def close_doors(self) -> int:
        """Stop the workload, wait until everything is captured; returns the number of transactions."""
        self.stop.set()
        if self.thread is not None:
            self.thread.join()
        self.server.agent.drain()
        return self.workload.steps


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a closed terminal, end the demo as Ctrl-C does: nothing it has started outlives it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def open_shop(seed: int) -> Iterator[Shop]:
    """Start the server; make the sample database if it is not there yet."""
    from cdc_assets.standin import sample
    from cdc_assets.standin.control import StandIn
    from cdc_assets.standin.workload import Workload

    with StandIn(directory=STATE / "standin", password="S" + secrets.token_urlsafe(18)) as server:
        if not server.execute("SELECT name FROM sys.databases WHERE name = ?", sample.DATABASE):
            step(f"Making the sample database {sample.DATABASE}")
            server.execute(f"CREATE DATABASE [{sample.DATABASE}]")
            with server.connect(sample.DATABASE) as connection:
                sample.create(connection.execute)
            server.agent.drain()
        workload = Workload(server.connect(sample.DATABASE, autocommit=False), seed)
        yield Shop(server, workload, threading.Event())


@app.command()
@needs_demo
@clear_errors
def run(
    seconds: Annotated[float, typer.Option(min=0, help="How long the workload goes on after the snapshot.")] = 8.0,
    rate: Annotated[float, typer.Option(min=0.01, help="Transactions a second.")] = 25.0,
) -> None:
    """Snapshot and changes of a busy shop through Dagster, then a summary."""
    started = time.monotonic()
    step("Starting a stand-in SQL Server")
    with ended_by_signals(), open_shop(seed=time.time_ns()) as shop:
        os.environ.update(shop.environment())
        config = read_config(CONFIGURATION)
        before = totals(config)
        step(f"It listens on {shop.server.host}:{shop.server.port}; {rate:g} transactions a second begin")
        shop.open_doors(rate)
        step("Capturing through Dagster (a Spark session starts first)")
        capture_while_busy(shop, seconds)
        agrees = print_summary(config, compare(config, before, shop.server), shop.workload.steps)
    out.print(
        f"[dim]{time.monotonic() - started:.0f} s. Again: only what is new is captured. Pages: make dev. Anew: make clean.[/]"
    )
    if not agrees:
        err.print("The lake and the server differ; see the numbers in red.")
        raise typer.Exit(1)


def capture_while_busy(shop: Shop, seconds: float) -> None:
    """Run the capture's process; close the shop some time after the snapshot; wait for the capture to be idle."""
    command = [sys.executable, "-m", "cdc_assets.cli.demo_capture"]
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with (
        LOG.open("w") as log,
        subprocess.Popen(  # noqa: S603 - this interpreter, our module
            command, env=shop.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                log.write(line)
                if (message := _MESSAGE.match(line)) and not _NOTIFICATION.match(message["text"]):
                    out.print(f"    {message['text']}", soft_wrap=True, markup=False)
                elif line.strip() == SNAPSHOT_DONE:
                    threading.Timer(seconds, shop.close_doors).start()
        except BaseException:
            process.kill()
            raise
    shop.close_doors()
    if process.returncode:
        err.print(f"The capture failed with exit code {process.returncode}. Everything it said is in {LOG}.")
        raise typer.Exit(1)


@app.command()
@needs_demo
@clear_errors
def dev(
    rate: Annotated[float, typer.Option(min=0.01, help="Transactions a second.")] = 2.0,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of Dagster's pages.")] = 3000,
) -> None:
    """Dagster's pages with sensors on and a busy shop, until Ctrl-C."""
    step("Starting a stand-in SQL Server")
    with ended_by_signals(), open_shop(seed=time.time_ns()) as shop:
        shop.open_doors(rate)
        step(
            f"{rate:g} transactions a second; Dagster's pages open on http://127.0.0.1:{port} (Ctrl-C ends everything)"
        )
        command = [sys.executable, "-m", "dagster", "dev", "--host", "127.0.0.1", "--port", str(port)]
        with dagster_process(command, shop.environment()) as process:
            try:
                process.wait()
            except KeyboardInterrupt:
                step("Ending")
        shop.close_doors()


@contextmanager
def dagster_process(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """`dagster dev` in a process group of its own, so that nothing of it stays.

    SIGINT is restored first: started from a shell's background it is ignored, and Dagster would copy that to SIGTERM.
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


if __name__ == "__main__":
    app()
