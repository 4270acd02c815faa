"""Places in logs, what proves that the lake has reached one, and which topics are whose."""

from typing import Any

import pytest

from cdc_assets.config.engine import EngineConfig, engine_config
from cdc_assets.connectors.databases.mysql import _is_change, read_tables
from cdc_assets.connectors.databases.postgres import holds_no_changes
from cdc_assets.connectors.engine.ledger import Batch, BatchState
from cdc_assets.connectors.engine.source import (
    LogPoint,
    binlog_point,
    is_complete,
    point_of_offset,
    recorded_point,
    wal_point,
)
from cdc_assets.connectors.engine.topics import routes, system_topics, table_of, topic_of, topics_of_tables
from cdc_assets.core.identifiers import TableId


def config(kind: str = "mysql.MySql", **more: str) -> EngineConfig:
    given = {name.replace("_", "."): text for name, text in more.items()}
    return engine_config(
        {"connector.class": f"io.debezium.connector.{kind}Connector", "topic.prefix": "shop", "lake.path": "x"} | given
    )


def test_points_are_compared_as_the_logs_are() -> None:
    assert binlog_point("bin.000009", 900) < binlog_point("bin.000010", 4)
    assert str(wal_point(0x1_0000_00FF)) == "1/FF"
    assert point_of_offset({"lsn": 7, "lsn_proc": 9, "lsn_commit": None}) == wal_point(9)
    assert point_of_offset({"scn": "1234567890123"}) == LogPoint((1234567890123,), "")
    assert point_of_offset({"file": "bin.1", "pos": "x"}) is None
    assert point_of_offset({"something": 1}) is None


def state(*offsets: dict[str, Any], quiet: bool = True, pending: bool = False) -> BatchState:
    batch = Batch(0, {}, [], 0) if pending else None
    return BatchState(1, batch, {str(number): offset for number, offset in enumerate(offsets)}, quiet=quiet)


def test_an_offset_that_tells_nothing_leaves_the_place_open() -> None:
    assert recorded_point(state({"scn": "5"}, {"scn": "3"})) == LogPoint((3,), "3")
    assert recorded_point(state({"scn": "5"}, {"other": 1})) is None
    assert recorded_point(state()) is None


class Probe:
    """A database whose log holds nothing more, or something."""

    def __init__(self, *, nothing: bool) -> None:
        self.nothing = nothing

    def has_no_changes_between(self, offset: Any, end: LogPoint) -> bool:
        return self.nothing


@pytest.mark.parametrize(
    ("given", "nothing", "proved"),
    [
        (state({"scn": "10"}), False, True),
        (state({"scn": "9"}), False, False),
        (state({"scn": "9"}), True, True),
        (state({"scn": "9"}, quiet=False), True, False),
        (state({"scn": "10"}, pending=True), True, False),
        (state({"scn": "11"}), True, False),  # another log
        (state(), True, False),
    ],
)
def test_completeness_is_proved_or_not_claimed(given: BatchState, nothing: bool, proved: bool) -> None:
    assert is_complete(given, Probe(nothing=nothing), LogPoint((10,), "10")) is proved  # type: ignore[arg-type] # all that is asked


@pytest.mark.parametrize(
    ("kind", "info", "change"),
    [
        ("Table_map", "table_id: 18 (shop.items)", True),
        ("Table_map", "table_id: 18 (other.items)", False),
        ("Table_map", "something else", True),
        ("Transaction_payload", "compression='ZSTD', decompressed_size=2000 bytes", True),
        ("Query", "use `shop`; TRUNCATE items", True),
        ("Query", "BEGIN", False),
        ("Xid", "COMMIT /* xid=9 */", False),
        ("Rotate", "bin.000002;pos=4", False),
    ],
)
def test_events_of_the_binlog_that_matter(kind: str, info: str, change: bool) -> None:
    accepts = read_tables(config(database_include_list="shop"))
    assert _is_change(kind, info, accepts) is change


def test_rows_of_the_signal_table_are_read_whatever_the_lists_say() -> None:
    """Else a signal on a quiet server would be nothing new, and start no run."""
    accepts = read_tables(
        config(
            database_include_list="shop",
            table_include_list="shop.orders",
            signal_data_collection="ops.Signals",
        )
    )
    found = [
        name
        for name in ("shop.orders", "shop.items", "ops.signals")
        if _is_change("Table_map", f"id: 1 ({name})", accepts)
    ]
    assert found == ["shop.orders", "ops.signals"]


@pytest.mark.parametrize(
    ("messages", "nothing"),
    [
        ([], True),
        ([("B", 40), ("R", 40), ("I", 40), ("C", 100)], True),
        ([("B", 100), ("I", 100), ("C", 140)], False),  # written where the last transaction ends
        ([("B", 60), ("I", 60), ("C", 100), ("B", 40), ("I", 40), ("C", 140)], False),  # begun first, committed last
        ([("B", 100), ("R", 100), ("C", 140)], True),
        ([("B", 100), ("T", 100), ("C", 140)], False),
    ],
)
def test_messages_of_a_slot_that_were_not_read(messages: list[tuple[str, int]], nothing: bool) -> None:
    assert holds_no_changes(messages, 100) is nothing


@pytest.mark.parametrize(
    ("kind", "table", "topic"),
    [
        ("mysql.MySql", TableId("db", "", "orders"), "shop.db.orders"),
        ("postgresql.Postgres", TableId("erp", "public", "orders"), "shop.public.orders"),
        ("oracle.Oracle", TableId("erp", "SALES", "ORDERS"), "shop.SALES.ORDERS"),
    ],
)
def test_tables_and_topics(kind: str, table: TableId, topic: str) -> None:
    found = config(kind, database_dbname="erp")
    assert topic_of(table, found) == topic
    assert table_of(topic, found) == table


def test_topics_of_no_table_are_left_out() -> None:
    found = config(heartbeat_interval_ms="10", provide_transaction_metadata="true")
    directories = ["shop.db.a", "shop.db.a@2", "shop.db.b", *system_topics(found).values()]
    assert len(system_topics(found)) == 5
    assert topics_of_tables(directories, found) == ["shop.db.a", "shop.db.b"]


def test_routed_topics_are_noticed() -> None:
    assert not routes(config())
    routed = engine_config(
        {"topic.prefix": "shop", "lake.path": "x", "transforms.r.type": "io.debezium.transforms.ByLogicalTableRouter"}
    )
    assert routes(routed)


@pytest.mark.parametrize("name", ["shop.orders.old", "shop.orders", "shop.a.b.c"])
def test_a_table_with_a_point_in_its_name_is_changed(name: str) -> None:
    """The binlog quotes no names."""
    info = f"table_id: 35 ({name})"
    assert _is_change("Table_map", info, read_tables(config(database_include_list="shop")))
    assert _is_change("Table_map", info, read_tables(config(table_include_list=name.replace(".", "\\."))))
    assert not _is_change("Table_map", info, read_tables(config(database_include_list="other")))
