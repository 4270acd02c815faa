"""The story on a real server of another kind, `python -m demo mysql`, behind `make run-mysql`.

A MariaDB of the demo's own with a small shop, a live workload, Debezium's MySQL connector run by Dagster, and a summary that
compares the lake with the server. Everything lies in `var/mysql`, so a second run captures only what is new.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from rich.table import Table
from rich.text import Text

from cdc_assets.cli.console import err, out
from cdc_assets.cli.topic_events import OPERATIONS, rows_by_operation
from cdc_assets.config.engine import EngineConfig, load_engine_config
from cdc_assets.errors import CdcError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from demo.log import message_of
from demo.mariadb import MariaDb
from demo.summary import live_rows

CONFIGURATION = Path("resources/engines/mysql.json")
STATE = Path("var/mysql")
DATABASE = "shop"
_TABLES = {
    "customers": "id int primary key auto_increment, name varchar(60) not null, balance decimal(12,2) not null default 0",
    "orders": "id int primary key auto_increment, customer int not null, state enum('new', 'paid', 'sent') not null, at datetime(3) not null default now(3)",
    "order_lines": "order_id int not null, line int not null, item varchar(40) not null, amount int not null, primary key (order_id, line)",
}
_TRANSACTIONS = (
    "insert into orders (customer, state) select id, 'new' from customers order by rand() limit 1; "
    "set @o = last_insert_id(); insert into order_lines values (@o, 1, @item, 2), (@o, 2, 'pen', 1);",
    "insert into orders (customer, state) select id, 'new' from customers order by rand() limit 1; "
    "insert into order_lines values (last_insert_id(), 1, @item, 3);",
    "update orders set state = 'paid' where id = @last - @back and state = 'new'; "
    "update customers set balance = balance - 1.25 where id = (select customer from orders where id = @last - @back);",
    "update order_lines set line = line + 10 where order_id = @last - @back order by line desc;",
    "delete from order_lines where order_id = @last - @back; delete from orders where id = @last - @back;",
    "insert into customers (name) values (@item); rollback; begin;",
)
"""New orders, payments, changed keys, cancelled orders, mistakes."""
_LAST = "select max(id) into @last from orders;"
_SAMPLE = 40
LOG = STATE / "demo.log"


class Workload:
    """Changes the shop, a transaction at a time.

    Args:
        server: that has it.
        seed: of the choices.
    """

    def __init__(self, server: MariaDb, seed: int) -> None:
        self._server, self._chance = server, random.Random(seed)  # noqa: S311 - not for secrets
        self.transactions = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def create(self) -> None:
        """Make the tables and some customers, if there are none."""
        for name, columns in _TABLES.items():
            self._server.execute(f"use {DATABASE}; create table if not exists {name} ({columns})")
        if self._server.execute(f"select count(*) from {DATABASE}.customers") == [["0"]]:  # noqa: S608 - constants
            names = ", ".join(f"('Customer {number}', {number}.50)" for number in range(_SAMPLE))
            self._server.execute(f"insert into {DATABASE}.customers (name, balance) values {names}")  # noqa: S608 - constants

    def start(self) -> None:
        """Begin to change things."""
        self._thread.start()

    def end(self) -> None:
        """Stop, and wait until the last transaction is done."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            count = self._chance.randrange(1, 8)
            try:
                self._server.execute(f"use {DATABASE}; " + " ".join(self._transaction() for _ in range(count)))
            except CdcError as error:
                err.print(f"The workload ends: {error}")
                return
            self.transactions += count

    def _transaction(self) -> str:
        item, back = self._chance.choice(["tea", "Grüße", "it''s", "lamp"]), self._chance.randrange(30)
        chosen = f"set @item = '{item}', @back = {back};"
        return f"begin; {chosen} {_LAST} {self._chance.choice(_TRANSACTIONS)} commit;"


def play(seconds: float) -> bool:
    """Run the story once.

    Args:
        seconds: how long the workload goes on behind the first batch.

    Returns:
        Whether lake and server agree.

    Raises:
        PreflightError: no MariaDB is installed.
        ConnectionLostError: it does not start.
    """
    out.print("[bold green]==>[/] Starting a MariaDB", soft_wrap=True)
    with MariaDb(STATE / "server", DATABASE) as server:
        os.environ |= {"SHOP_PORT": str(server.port), "SHOP_PASSWORD": server.password}
        workload = Workload(server, time.time_ns())
        workload.create()
        config = load_engine_config(CONFIGURATION)
        before = _totals(config)
        out.print(f"[bold green]==>[/] It listens on 127.0.0.1:{server.port}; the shop opens", soft_wrap=True)
        workload.start()
        try:
            out.print(
                "[bold green]==>[/] Capturing through Dagster with Debezium's MySQL connector (a Java machine starts first)"
            )
            captured = _capture(workload, seconds)
        finally:
            workload.end()
        agree = captured and _print_summary(config, before, server)
    out.print(f"The workload committed {workload.transactions:,} transactions.")
    out.print(f"The Delta tables, one per topic, are in {config.lake.path}", soft_wrap=True)
    return agree


def _capture(workload: Workload, seconds: float) -> bool:
    """Capture through Dagster in a process of its own; the shop closes some time behind the first batch."""
    command = [sys.executable, "-m", "demo.mysql_capture"]
    environment = os.environ | {"DAGSTER_HOME": str(Path.cwd()), "PYTHONUNBUFFERED": "1"}
    closing: threading.Timer | None = None
    with (
        LOG.open("w") as log,
        subprocess.Popen(  # noqa: S603 - this interpreter, our module
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                log.write(line)
                if (message := message_of(line)) is None:
                    continue
                out.print(f"    {message}", soft_wrap=True, markup=False)
                if closing is None and _is_of_tables(message):
                    closing = threading.Timer(seconds, workload.end)
                    closing.start()
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        err.print(f"The capture failed with exit code {process.returncode}. Its complete output is in {LOG}.")
    return not process.returncode


def _is_of_tables(text: str) -> bool:
    """Whether a line reports a batch with more than the notification that the snapshot has begun."""
    return text.startswith("batch ") and not text.endswith(" of 1 tables")


def _totals(config: EngineConfig) -> dict[str, Counter[str]]:
    """Events in the lake by table and operation."""
    lake = _lake(config)
    return {table: Counter(rows_by_operation(lake, lake.generations(_topic(config, table)))) for table in _TABLES}


def _lake(config: EngineConfig) -> TopicTables:
    return TopicTables(Location.of(config.lake), config.topic_prefix, config.lake)


def _topic(config: EngineConfig, table: str) -> str:
    return f"{config.topic_prefix}.{DATABASE}.{table}"


def _print_summary(config: EngineConfig, before: dict[str, Counter[str]], server: MariaDb) -> bool:
    """Events of this run, and rows in the lake beside those on the server."""
    shown = Table(box=None, header_style="bold", padding=(0, 1))
    for name in ("topic", *OPERATIONS.values(), "rows", "server"):
        shown.add_column(name, justify="left" if name == "topic" else "right", no_wrap=True)
    lake, agree = _lake(config), True
    for table, counts in _totals(config).items():
        topic = _topic(config, table)
        live = live_rows(lake, lake.generations(topic))
        rows = int(server.execute(f"select count(*) from {DATABASE}.{table}")[0][0])  # noqa: S608 - constants
        style = "green" if live == rows else "bold red"
        agree = agree and live == rows
        new = counts - before[table]
        ends = (Text(f"{number:,}", style) for number in (live, rows))
        shown.add_row(topic, *(f"{new[name]:,}" for name in OPERATIONS.values()), *ends)
    out.print("\n[bold]Events of this run[/], by topic and operation")
    out.print(shown)
    if not agree:
        err.print("The lake and the server differ; see the numbers in red.")
    return agree
