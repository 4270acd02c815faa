"""What `MS_Description` says about tables and columns is read with few statements, and its lack stops nothing."""

import socket
from dataclasses import replace

import pytest

from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets_tests.contract.source.conftest import DATABASE, Server, connection
from cdc_assets_tests.contract.source.proxy import Proxy
from cdc_assets_tests.descriptions import call
from mssql_standin.control import StandIn

_TABLES = [TableId(DATABASE, "dbo", name) for name in ("goods", "plain")]


@pytest.fixture
def schemas(server: Server, source: SqlServerSource) -> list[TableSchema]:
    """A table with descriptions, and one without."""
    for statement in (
        "CREATE TABLE dbo.goods (id int NOT NULL PRIMARY KEY, gone int NULL, price money NULL)",
        "ALTER TABLE dbo.goods DROP COLUMN gone",
        "CREATE TABLE dbo.plain (id int NOT NULL PRIMARY KEY)",
        call("dbo.goods", "add", "What is sold"),
        call("dbo.goods", "add", "Net", "price"),
        call("dbo.goods", "add", "kg", "price", name="unit"),
    ):
        server.execute(statement, database=DATABASE)
    return list(source.table_schemas(_TABLES).values())


def test_one_statement_reads_the_descriptions_of_all_tables(
    source: SqlServerSource, schemas: list[TableSchema], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    rows = source.session.rows
    monkeypatch.setattr(source.session, "rows", lambda text, *values: (asked.append(text), rows(text, *values))[1])
    found = source.descriptions(schemas)
    assert found == {_TABLES[0]: {0: "What is sold", 3: "Net"}}
    assert len(asked) == 1
    described = schemas[0].described(found[_TABLES[0]])
    assert described.descriptions == ("What is sold", None, "Net")
    assert described == schemas[0], "a description alone is no change of a structure"


@pytest.mark.parametrize("number", [229, 208, 1222])
def test_descriptions_that_cannot_be_read_are_left_out(
    source: SqlServerSource, standin: StandIn, schemas: list[TableSchema], number: int
) -> None:
    standin.faults.error(number, matching="cdc-assets: descriptions", times=100)
    assert source.descriptions(schemas) == {}


_SNOWMAN, _HALF_A_PAIR = b"\x03\x26", b"\x3d\xd8"


class Halving(Proxy):
    """A server with half of a surrogate pair in place of a sign: our own cannot hold it."""

    def _answer(self, client: socket.socket, data: bytes, number: int) -> None:
        super()._answer(client, data.replace(_SNOWMAN, _HALF_A_PAIR), number)


def test_half_of_a_surrogate_pair_stops_nothing(standin: StandIn) -> None:
    """A text that is cut after so many units of UTF-16 may end in one, and `nvarchar` takes it as well."""
    for statement in (
        "CREATE TABLE dbo.goods (id int NOT NULL PRIMARY KEY, name nvarchar(9) DEFAULT N'\u2603')",
        call("dbo.goods", "add", "Sold \u2603"),
    ):
        standin.execute(statement, database=DATABASE)
    between = Halving((standin.host, standin.port))
    try:
        with SqlServerSource(replace(connection(standin, DATABASE), port=between.port)) as source:
            [schema] = source.table_schemas(_TABLES[:1]).values()
            assert schema.columns[1].default == "(N'\ufffd')"
            assert source.descriptions([schema]) == {_TABLES[0]: {0: "Sold \ufffd"}}
    finally:
        between.close()
