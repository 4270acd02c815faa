"""Parameters have their declared types, whatever the client sends for them: by sp_executesql, by a prepared handle, and in a
call of a procedure, as remote calls and as text."""

from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytds
import pytest

from cdc_assets_tests.contract.clients.stacks import STACKS, Client, Failure, Server, plain

# declared type, value sent, its literal (empty if there is none), value expected
CONVERTED: list[tuple[str, Any, str, Any]] = [
    ("char(5)", "ab", "'ab'", "ab   "),
    ("nchar(3)", "abcdef", "N'abcdef'", "abc"),
    ("nvarchar(2)", "abcdef", "N'abcdef'", "ab"),
    ("varchar(3)", "äöüß", "N'äöüß'", "äöü"),
    ("varchar(2)", 12345, "12345", "*"),
    ("int", Decimal("1.7"), "1.7", 1),
    ("int", Decimal("-1.7"), "-1.7", -1),
    ("int", 2.9, "2.9e0", 2),
    ("int", " 12 ", "' 12 '", 12),
    ("bit", 5, "5", True),
    ("tinyint", 255, "255", 255),
    ("decimal(5,2)", Decimal("1.235"), "1.235", Decimal("1.24")),
    ("decimal(5,2)", "1.5", "'1.5'", Decimal("1.5")),
    ("money", Decimal("1.00005"), "1.00005", Decimal("1.0001")),
    ("real", 0.1, "0.1e0", pytest.approx(0.1, rel=1e-6)),
    ("datetime2(0)", datetime.fromisoformat("2020-01-01 10:00:00.6"), "", "2020-01-01 10:00:01"),
    ("date", datetime.fromisoformat("2020-01-01 23:59:59"), "", "2020-01-01"),
    ("time(0)", time.fromisoformat("10:00:00.6"), "", "10:00:01"),
    ("datetime", "2020-01-01T10:00:00.002", "'2020-01-01T10:00:00.002'", "2020-01-01 10:00:00.003"),
    ("uniqueidentifier", "6f9619ff-8b86-d011-b42d-00c04fc964ff", "'6f9619ff-8b86-d011-b42d-00c04fc964ff'", "6F9619FF-8B86-D011-B42D-00C04FC964FF"),
    ("binary(4)", b"\x01\x02", "0x0102", b"\x01\x02\0\0"),
    ("varbinary(2)", b"\x01\x02\x03", "0x010203", b"\x01\x02"),
    ("nvarchar(10)", None, "NULL", None),
]  # fmt: skip

REFUSED: list[tuple[str, Any, str, int]] = [
    ("int", "twelve", "'twelve'", 8114),
    ("tinyint", 300, "300", 8114),
    ("smallint", 1e9, "1e9", 8114),
    ("int", 2**40, "1099511627776", 8114),
    ("decimal(4,2)", Decimal("123.4"), "123.4", 8114),
    ("nvarchar(2)", 12345, "12345", 8114),
    ("datetime", "2020-13-01", "'2020-13-01'", 8114),
    ("uniqueidentifier", "nobody", "'nobody'", 8114),
    ("varbinary(4)", "abc", "'abc'", 257),
    ("nosuch", 1, "", 2715),
    ("date", 5, "5", 206),
    ("int", date.fromisoformat("2020-01-01"), "", 206),
]  # fmt: skip

WAYS = ["sp_executesql", "sp_prepexec", "call", "text", "text of a call"]


class Parameters:
    """Hands a value to a parameter of a declared type, which gives it back."""

    def __init__(self, server: Server, database: str, table: str) -> None:
        self.client: Client = STACKS["pytds"](server, database)
        self.procedure = f"{table}_p"

    def returned(self, way: str, declared: str, value: Any, literal: str) -> Any:
        if "call" in way:
            self.client.execute(f"CREATE OR ALTER PROCEDURE {self.procedure} @v {declared} AS SELECT @v")
        if way == "text":
            return self.client.execute(f"EXEC sp_executesql N'SELECT @v', N'@v {declared}', {literal}")[0][0]
        if way == "text of a call":
            return self.client.execute(f"EXEC {self.procedure} {literal}")[0][0]
        handle = pytds.output(param_type=int)
        arguments = {
            "sp_executesql": ("SELECT @v", f"@v {declared}", value),
            "sp_prepexec": (handle, f"@v {declared}", "SELECT @v", value),
            "call": (value,),
        }[way]
        return self._remote(self.procedure if way == "call" else way, arguments)

    def _remote(self, procedure: str, arguments: tuple[Any, ...]) -> Any:
        cursor = self.client.raw.cursor()
        try:
            cursor.callproc(procedure, arguments)
            return plain(cursor.fetchone()[0])
        except pytds.Error as error:
            raise Failure(error, getattr(error, "number", 0), "") from error
        finally:
            cursor.close()


@pytest.fixture
def parameters(server: Server, database: str, table: str) -> Iterator[Parameters]:
    found = Parameters(server, database, table)
    yield found
    found.client.execute(f"DROP PROCEDURE IF EXISTS {found.procedure}")
    found.client.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_parameter_takes_a_value_as_its_type_does(parameters: Parameters, way: str) -> None:
    for declared, value, literal, expected in CONVERTED:
        sent = pytds.Binary(value) if isinstance(value, bytes) else value
        if literal or "text" not in way:
            assert (declared, parameters.returned(way, declared, sent, literal)) == (declared, expected)


@pytest.mark.parametrize("way", WAYS)
def test_a_value_that_does_not_convert_is_refused(parameters: Parameters, way: str) -> None:
    for declared, value, literal, number in REFUSED:
        if literal or "text" not in way:
            with pytest.raises(Failure) as raised:
                parameters.returned(way, declared, value, literal)
            assert (declared, raised.value.number) == (declared, number)


def test_a_parameter_keeps_its_declared_length(parameters: Parameters, table: str) -> None:
    """Whatever a statement does with it: ISNULL cuts to it, assignments cut to it, results and output parameters tell it."""
    execute = parameters._remote
    assert execute("sp_executesql", ("SELECT ISNULL(@v, N'abcdef')", "@v nvarchar(2)", None)) == "ab"
    assert execute("sp_executesql", ("SET @v = N'abcdef'; SELECT @v", "@v nvarchar(2)", "x")) == "ab"
    made = f"SELECT @v AS v INTO {table}; SELECT COL_LENGTH('{table}', 'v')"
    assert execute("sp_executesql", (made, "@v varchar(7)", "x")) == 7


def test_an_alias_type_is_its_base_type(parameters: Parameters, server: Server, database: str, table: str) -> None:
    parameters.client.execute(f"CREATE TYPE {table}_short FROM char(4)")
    try:
        assert parameters.returned("sp_executesql", f"{table}_short", "x", "") == "x   "
    finally:
        parameters.client.execute(f"DROP TYPE {table}_short")


@pytest.mark.parametrize("text", ["", "a", "é😀", "😀" * 30, "日" * 300, "x" * 4000, "😀" * 2000, "y" * 9000])
def test_text_of_any_length_arrives_whole(client: Client, text: str) -> None:
    """Every driver declares lengths of its own."""
    assert client.execute("SELECT ? AS v", text) == [(text,)]
