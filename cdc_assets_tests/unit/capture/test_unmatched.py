"""What matches nothing in lists of the settings is told, until something comes that it matches."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.capture.unmatched import Existing, find_unmatched
from cdc_assets.config.build import build_config
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.overview import CaptureOverview, report_of
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.simulation import DATABASE
from cdc_assets_tests.unit.streaming.tables import two_tables

TABLE = TableId("SalesDb", "dbo", "orders")
SCHEMA = TableSchema(TABLE, 7, (Column("id", "int", 1, nullable=False), Column("name", "nvarchar", 2)), ("id",))
MATCHES = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
LISTS: list[tuple[str, str, str]] = [
    ("table.include.list", r"dbo\.orders", r"dbo\.ordes"),
    ("table.exclude.list", r"dbo\.plain", r"dbo\.plan"),
    ("schema.include.list", "dbo,archive", "db"),
    ("schema.exclude.list", "archive", "archiv"),
    ("internal.capture.instance.include.list", "dbo_orders", "dbo.orders_v2"),
    ("internal.capture.instance.exclude.list", "dbo_orders", "dbo.orders_v2"),
    ("column.include.list", r"dbo\.orders\.id", r"dbo\.orders\.ident"),
    ("column.exclude.list", r"salesdb\.dbo\.orders\.name", r"orders\.name"),
    ("column.mask.with.3.chars", r"dbo\.orders\.name", r"dbo\.orders\.names"),
    ("column.mask.hash.SHA-256.with.salt.s3cret", r"dbo\.orders\.name", r"dbo\.orders\.names"),
    ("column.truncate.to.3.chars", r"dbo\.orders\.name", r"dbo\.orders\.names"),
    ("column.propagate.source.type", r".*\.name", r".*\.names"),
    ("datatype.propagate.source.type", r".*\.nvarchar", r".*\.varchar2"),
    ("message.key.columns", r"dbo\.orders:id", r"dbo\.ordes:id"),
    ("message.key.columns", r"dbo\.orders:id,name", r"dbo\.orders:nmae"),
    ("snapshot.include.collection.list", r"dbo\.orders", r"dbo\.plain"),
    ("mirror.table.include.list", r"dbo\.orders", r"dbo\.ordes"),
    ("snapshot.max.threads.multiplier.dbo.orders", "2", ""),
    ("snapshot.max.threads.multiplier.dbo.ordes", "", "2"),
    ("signal.data.collection", "SalesDb.dbo.plain", "SalesDb.dbo.plan"),
]  # fmt: skip


def settings(**more: str) -> Any:
    given = {
        "database.hostname": "h", "database.user": "u", "database.password": "p", "database.names": "SalesDb",
        "topic.prefix": "shop", "mirror.enabled": "true",
    }  # fmt: skip
    own = {"table.include.list": r"dbo\.orders"}
    filters = {"table.include.list", "table.exclude.list", "schema.include.list", "schema.exclude.list"}
    return build_config(given | ({} if filters & more.keys() else own) | more)


def missing(**more: str) -> list[tuple[str, str]]:
    tables = [TABLE, TableId("SalesDb", "dbo", "plain"), TableId("SalesDb", "archive", "orders")]
    found = find_unmatched(settings(**more), Existing(tables, ["dbo_orders"], [SCHEMA]))
    assert all("s3cret" not in str(one) for one in found)
    return [(one.property_name, one.pattern) for one in found]


@pytest.mark.parametrize(("name", "good", "bad"), LISTS)
def test_each_list_is_compared_with_what_it_is_about(name: str, good: str, bad: str) -> None:
    own = name.replace("SHA-256", "<algorithm>").replace("s3cret", "<salt>").replace(".3.", ".<length>.")
    if "multiplier" in name:
        assert missing(**{name: good or bad}) == ([("snapshot.max.threads.multiplier", "dbo.ordes")] if bad else [])
        return
    assert missing(**{name: good}) == []
    assert missing(**{name: bad}) == [(own, bad)]
    if name == "signal.data.collection":  # one for each database
        return
    separator = ";" if name == "message.key.columns" else ","
    assert missing(**{name: f"{good}{separator}{bad}"}) == [(own, bad)], "the others do not hide it"


def test_transforms_are_compared_with_the_topics_until_one_renames_them() -> None:
    chain = {
        "bootstrap.servers": "b:9092", "transforms": "a,b", "transforms.a.type": UNWRAP, "transforms.a.predicate": "p",
        "transforms.b.type": UNWRAP, "transforms.b.predicate": "q", "predicates": "p,q", "predicates.p.type": MATCHES,
        "predicates.q.type": MATCHES, "predicates.q.pattern": "renamed",
    }  # fmt: skip
    assert missing(**chain, **{"predicates.p.pattern": r"shop\.SalesDb\.dbo\.orders"}) == []
    assert missing(**chain, **{"predicates.p.pattern": r"shop\.dbo\.orders"}) == [
        ("transforms.a.predicate", r"shop\.dbo\.orders")
    ]


def test_misspelt_table_is_told_until_it_comes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server, config, _, _ = two_tables(tmp_path)
    patterns = (r"dbo\.lines", r"dbo\.orders", r"dbo\.late", r"dbo\.lat")
    config = replace(config, filters=replace(config.filters, table_include=patterns))

    def look() -> Any:
        return report_of(CaptureOverview(config, server), server.now)  # type: ignore[arg-type]

    with caplog.at_level(logging.WARNING):
        make_capture(server, config).stream()
    assert r"table.include.list: dbo\.late matches no table. Next: correct it" in caplog.text
    assert [trouble.where for trouble in look().troubles] == ["table.include.list"] * 2
    assert look().health == "in trouble"
    server.create("late")
    server.commit((TableId(DATABASE, "dbo", "late"), "insert", 1, "a"))
    make_capture(server, config).snapshot()
    make_capture(server, config).stream()
    assert [str(trouble).partition(" matches")[0] for trouble in look().troubles] == [r"table.include.list: dbo\.lat"]
    server.create("lat", captured=False)
    assert look().headline == "healthy"


@pytest.mark.parametrize(
    ("name", "pattern", "other"),
    [
        ("table.exclude.list", r"dbo\.\w+_log", "dbo.größe_log"),
        ("column.mask.with.3.chars", r"dbo\.größe_log\.\w+", "dbo.größe_log.姓名"),
    ],
)
def test_names_that_only_classes_of_every_script_would_match_are_told(name: str, pattern: str, other: str) -> None:
    table = TableId("SalesDb", "dbo", "größe_log")
    columns = (Column("id", "int", 1, nullable=False), Column("姓名", "nvarchar", 2))
    existing = Existing([table, TableId("SalesDb", "dbo", "a_log")], [], [TableSchema(table, 7, columns, ("id",))])
    own = {"table.include.list": ".*"} if "table" not in name else {}
    [found] = find_unmatched(settings(**own, **{name: pattern}), existing)
    assert str(found).startswith(f"{name.replace('.3.', '.<length>.')}: {pattern} matches no {other}, because")
    assert "ASCII" in str(found)
