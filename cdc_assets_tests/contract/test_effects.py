"""What a property of a configuration file does to a run: one row for each, with an outcome that the default does not have."""

import contextlib
import json
import random
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyodbc
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver import bulk_sessions
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.bulk_sessions import POOL
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.filters import TableFilter
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import CdcError, ServerBusyError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.contract.trial import DATABASE, ITEMS, Trial
from cdc_assets_tests.unit.lake.writing import join_all
from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract
TABLES = """
CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY, v nvarchar(20), note nvarchar(max));
CREATE TABLE dbo.twice (id int NOT NULL PRIMARY KEY, v nvarchar(20));
CREATE TABLE dbo.late (id int NOT NULL PRIMARY KEY, at datetime2(7));
CREATE TABLE dbo.plain (id int NOT NULL PRIMARY KEY);
CREATE TABLE dbo.signals (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048) NULL);
CREATE TABLE other.items (id int NOT NULL PRIMARY KEY, [a-b] int);
INSERT INTO dbo.orders VALUES (1, N'a', N'long'), (2, N'b', N'long'), (3, N'c', N'long');
INSERT INTO dbo.twice VALUES (1, N'a');
INSERT INTO dbo.late VALUES (1, '9999-12-31');
INSERT INTO other.items VALUES (1, 1)
"""
ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'{}', @source_name = N'{}', @role_name = NULL"
CHANGE = "UPDATE dbo.orders SET v = CONCAT(id, LEFT(v, 5)) WHERE id < 3"


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as started:
        started.execute("CREATE SCHEMA other", database=DATABASE)
        started.execute(TABLES, database=DATABASE)
        for name in ("orders", "late", "signals"):
            started.execute(ENABLE.format("dbo", name), database=DATABASE)
        started.execute(ENABLE.format("other", "items"), database=DATABASE)
        for instance, columns in (("twice_old", "id"), ("twice_new", "id, v")):
            more = f", @capture_instance = N'{instance}', @captured_column_list = N'{columns}'"
            started.execute(ENABLE.format("dbo", "twice") + more, database=DATABASE)
        yield started


@pytest.fixture
def trial(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    texts = {
        "topic.prefix": "shop",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": "sa",
        "database.password": server.password,
        "database.names": DATABASE,
        "table.include.list": r"dbo\.orders,other\.items",
        "driver.encrypt": "no",
        "stream.idle.timeout.ms": "20",
        "poll.interval.ms": "10",
        "lake.path": str(tmp_path / "lake"),
    }
    made = Trial(server, tmp_path, texts)
    read, sleep, lock = MssqlBulkSource.read, SystemClock.sleep, SqlServerSource.lock_tables

    def reading(own: MssqlBulkSource, text: str, parameters: Sequence[object] = ()) -> Iterator[pa.RecordBatch]:
        made.statements.append((text, lengths := []))
        for batch in read(own, text, parameters):
            lengths.append(len(batch))
            yield batch

    def sleeping(own: SystemClock, seconds: float) -> None:
        made.waits.append(seconds)
        sleep(own, min(seconds, 0.05))

    def locking(own: SqlServerSource, tables: Sequence[Any], *rest: Any) -> Any:
        made.locked.extend(map(str, tables))
        return lock(own, tables, *rest)

    def login(original: Callable[..., Any]) -> Callable[..., Any]:
        def connecting(text: str, *rest: str, **options: Any) -> Any:
            made.logins.append(";".join([text, *rest]))
            return original(text, *rest, **options)

        return connecting

    monkeypatch.setattr(MssqlBulkSource, "read", reading)
    monkeypatch.setattr(SystemClock, "sleep", sleeping)
    monkeypatch.setattr(SqlServerSource, "lock_tables", locking)
    monkeypatch.setattr(pyodbc, "connect", login(pyodbc.connect))
    monkeypatch.setattr(bulk_sessions, "NamedConnection", login(bulk_sessions.NamedConnection))
    POOL.clear()
    return made


Observe = Callable[[Trial], object]


def of(properties: dict[str, str], observe: Observe, expected: object, columns: str = "") -> Any:
    """A row of the table: the first property is the one in question, the others prepare for it."""
    return pytest.param(properties, observe, expected, id=next(iter(properties)))


def captured(look: Callable[[Trial], object]) -> Observe:
    """After a snapshot, and a window without changes."""

    def observe(trial: Trial) -> object:
        trial.capture()
        return look(trial)

    return observe


def streamed(look: Callable[[Trial], object], statement: str = CHANGE) -> Observe:
    """After a snapshot and a window with changes."""

    def observe(trial: Trial) -> object:
        trial.capture()
        trial.change(statement)
        trial.capture()
        return look(trial)

    return observe


def failed(needle: str) -> Observe:
    """Whether a capture fails and says so."""

    def observe(trial: Trial) -> object:
        result = trial.run("capture", "--local")
        return result.exit_code != 0 and needle in result.output

    return observe


def name_of_schema(topic: str) -> Observe:
    return captured(lambda trial: trial.events(topic)[-1]["value"]["schema"]["name"])


def parameters(trial: Trial) -> object:
    """Of the schema of column v of orders."""
    [after] = [part for part in trial.events()[-1]["value"]["schema"]["fields"] if part["field"] == "after"]
    return next(part.get("parameters", {}) for part in after["fields"] if part["field"] == "v").get(
        "__debezium.source.column.type"
    )


def login_of(trial: Trial) -> list[str]:
    """Connection strings of both drivers."""
    trial.run("doctor")
    with contextlib.suppress(CdcError):
        list(MssqlBulkSource.of(trial.config()).read("SELECT 1"))
    return trial.logins


def batches(tag: str) -> Observe:
    return lambda trial: {tuple(rows) for text, rows in trial.statements if tag in text and sum(rows) > 1}


def time_limit(trial: Trial) -> object:
    """Of a statement of the data plane."""
    session = bulk_sessions.opened(trial.config().connection)
    try:
        return session.connection.timeout
    finally:
        session.end()


def lost_history(trial: Trial) -> object:
    trial.capture()
    shutil.rmtree(trial.folder / "lake" / "shop.__schema_history")
    return trial.run("capture", "--local").exit_code == 0 and "orders" in trial.structures()


def lost_position(trial: Trial) -> str:
    trial.capture()
    for value in ("x", "y"):
        trial.change(f"UPDATE dbo.orders SET v = N'{value}'")
    [(newest,)] = trial.server.execute("SELECT sys.fn_cdc_get_max_lsn()", database=DATABASE)
    trial.server.agent.cleanup(DATABASE, "dbo_orders", newest)
    return trial.capture()


def busy(trial: Trial) -> object:
    """Waits after the server gave a window up once."""
    trial.capture()
    trial.change("UPDATE dbo.orders SET v = N'z'")
    bounds, failures = SqlServerSource.rows_per_commit, [ServerBusyError("given up.")]

    def giving_up(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return bounds(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlServerSource, "rows_per_commit", giving_up)
        trial.capture()
    return any(0.6 < wait <= 0.777 for wait in trial.waits)  # what is left of it


def files_of_a_compacted_table(trial: Trial) -> int:
    """Of six with 400 kB each, which cannot be packed."""
    settings = trial.config().lake
    directory = Path(settings.path) / "topic"
    for number in range(6):
        rows = {"id": [number], "text": [random.Random(number).randbytes(400_000)]}  # noqa: S311 - not for secrets
        write_deltalake(directory, pa.table(rows), mode="append")
    join_all(TopicTables(Location.of(settings), "shop"), "topic", settings)
    return len(DeltaTable(str(directory)).file_uris())


def reads(trial: Trial) -> list[str]:
    """Source tables in the order in which their rows are read."""
    return [
        name for text, _ in trial.statements if "rows */" in text for name in ("orders", "items") if f"[{name}]" in text
    ]


def asked(trial: Trial) -> Trial:
    """A table is read again beside the stream."""
    trial.capture()
    where = json.dumps({"data-collections": [f"{DATABASE}.dbo.orders"], "additional-condition": "id > 1"})
    trial.change(f"INSERT INTO dbo.signals VALUES ('{uuid.uuid4()}', 'execute-snapshot', '{where}')")
    trial.capture()
    return trial


SIGNALS = {"signal.data.collection": f"{DATABASE}.dbo.signals"}
CONFIGURED = {"snapshot.mode": "configuration_based"}

EFFECTS = [
    of({"database.instance": "SALES"}, lambda trial: "127.0.0.1\\SALES" in login_of(trial)[0], True),
    of({"database.query.timeout.ms": "1001"}, time_limit, 2),
    of(
        {"driver.applicationName": "nightly"},
        lambda trial: ["nightly" in text for text in login_of(trial)],
        [True, True],
    ),
    of(
        {"driver.authentication": "ActiveDirectoryMsi", "database.user": ""},
        lambda trial: ["Authentication={ActiveDirectoryMsi}" in text for text in login_of(trial)],
        [True, True],
    ),
    of({"odbc.driver": "No Such Driver"}, failed("No Such Driver"), True),
    of({"schema.include.list": "other"}, captured(Trial.topics), {ITEMS}),
    of({"schema.exclude.list": "dbo"}, captured(Trial.topics), {ITEMS}),
    of(
        {"table.ignore.builtin": "false", "table.include.list": r"dbo\.systranschemas"},
        lambda trial: TableFilter(trial.config().filters).accepts(TableId(DATABASE, "dbo", "systranschemas")),
        True,
    ),
    of({"column.include.list": r"dbo\.orders\.(id|v)"}, captured(Trial.columns), ["id", "v"]),
    of(
        {"internal.capture.instance.include.list": "twice_old", "table.include.list": r"dbo\.twice"},
        captured(lambda trial: trial.columns(f"shop.{DATABASE}.dbo.twice")),
        ["id"],
    ),
    of(
        {"internal.capture.instance.exclude.list": "twice_(new|none)", "table.include.list": r"dbo\.twice"},
        captured(lambda trial: trial.columns(f"shop.{DATABASE}.dbo.twice")),
        ["id"],
    ),
    of(
        {"guardrail.collections.limit.action": "fail", "guardrail.collections.max": "1"},
        failed("guardrail.collections.max"),
        True,
    ),
    of(
        {"topic.transaction": "tx", "provide.transaction.metadata": "true"},
        streamed(lambda trial: [row["value"]["status"] for row in trial.lake("shop.tx")]),
        ["BEGIN", "END"],
    ),
    of(
        {"schema.name.adjustment.mode": "avro", "topic.prefix": "shop-1"},
        name_of_schema(f"shop-1.{DATABASE}.dbo.orders"),
        f"shop_1.{DATABASE}.dbo.orders.Envelope",
    ),
    of({"field.name.adjustment.mode": "avro"}, captured(lambda trial: trial.columns(ITEMS)), ["id", "a_b"]),
    of(
        {"unavailable.value.placeholder": "(not logged)"},
        streamed(lambda trial: trial.last()["before"]["note"]),
        "(not logged)",
    ),
    of({"datatype.propagate.source.type": r".*\.NVARCHAR"}, captured(parameters), "NVARCHAR"),
    of({"extended.headers.enabled": "false"}, captured(lambda trial: trial.events()[-1]["headers"]), {}),
    of(
        {"event.converting.failure.handling.mode": "fail", "table.include.list": r"dbo\.late"},
        failed("9999"),
        True,
    ),
    of({"event.version": "2.3"}, captured(lambda trial: "ts_us" in trial.last()["source"]), False),
    of(
        {"schema.history.internal.store.only.captured.tables.ddl": "true"},
        captured(lambda trial: "plain" in trial.structures()),
        False,
    ),
    of(
        {"topic.heartbeat.prefix": "__beat", "heartbeat.interval.ms": "1"},
        streamed(lambda trial: "__beat.shop" in trial.topics()),
        True,
    ),
    of({"snapshot.fetch.size": "2"}, captured(batches("rows */")), {(2, 1)}),
    of({"query.fetch.size": "2"}, streamed(batches("dbo_orders_CT")), {(2, 2)}),
    of(
        {"snapshot.locking.mode": "none", "snapshot.isolation.mode": "exclusive"},
        captured(lambda trial: trial.locked),
        [],
    ),
    of({"snapshot.tables.order.by.row.count": "ascending"}, captured(reads), ["items", "orders"]),
    of(
        {"snapshot.mode.configuration.based.snapshot.data": "true", **CONFIGURED},
        captured(lambda trial: len(trial.events())),
        3,
    ),
    of(
        {"snapshot.mode.configuration.based.start.stream": "true", **CONFIGURED},
        lambda trial: "nothing new arrived" in trial.capture(),
        True,
    ),
    of(
        {"snapshot.mode.configuration.based.snapshot.schema": "true", **CONFIGURED},
        captured(lambda trial: (trial.topics(), "orders" in trial.structures())),
        (set(), True),
    ),
    of(
        {
            "snapshot.mode.configuration.based.snapshot.on.schema.error": "true",
            "snapshot.mode.configuration.based.start.stream": "true",
            **CONFIGURED,
        },
        lost_history,
        True,
    ),
    of(
        {
            "snapshot.mode.configuration.based.snapshot.on.data.error": "true",
            "snapshot.mode.configuration.based.start.stream": "true",
            **CONFIGURED,
        },
        lambda trial: "Snapshot: 1 table." in lost_position(trial),
        True,
    ),
    of({"retriable.restart.connector.wait.ms": "777"}, busy, True),
    of({"lake.target.file.bytes": "1048576"}, files_of_a_compacted_table, 3),
    of({"streaming.delay.ms": "1234"}, captured(lambda trial: 1.234 in trial.waits), True),
    of(
        {"database.sqlserver.agent.status.query": "SELECT 0"},
        lambda trial: "start the service" in trial.run("doctor").output,
        True,
    ),
    of(
        {"slices.per.window": "2"},
        streamed(lambda trial: sum("dbo_orders_CT" in text for text, _ in trial.statements), "; ".join([CHANGE] * 2)),
        2,
    ),
    of(
        {"rows.per.window": "1"},
        streamed(
            lambda trial: [row["kind"] for row in trial.lake("shop.__windows") if row["event"] == "complete"].count(
                "stream"
            ),
            "; ".join([CHANGE] * 2),
        ),
        2,
    ),
    of(
        {"incremental.snapshot.option.recompile": "true", **SIGNALS},
        lambda trial: any("RECOMPILE" in text for text, _ in asked(trial).statements),
        True,
    ),
    of(
        {"incremental.snapshot.watermarking.strategy": "insert_delete", **SIGNALS},
        lambda trial: [
            (event["value"] or {"payload": {}})["payload"].get("op")
            for event in asked(trial).events(f"shop.{DATABASE}.dbo.signals")
        ],
        ["c", "c", "d", None],
    ),
    of(
        SIGNALS,
        lambda trial: [
            event["key"]["payload"]["id"]
            for event in asked(trial).events()
            if event["value"]["payload"]["source"]["snapshot"] == "incremental"
        ],
        [2, 3],
    ),
]


@pytest.mark.long
@pytest.mark.parametrize(("properties", "observe", "expected"), EFFECTS)
def test_property_acts(trial: Trial, properties: dict[str, str], observe: Observe, expected: object) -> None:
    trial.texts |= properties
    assert observe(trial) == expected
