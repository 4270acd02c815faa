"""Implicit conversion when storing, scopes for DML, registered functions, syntax errors."""

from typing import Any

import pytest

from mssql_standin.contract import SessionContext
from mssql_standin.errors import SqlError
from mssql_standin.sql.convert import assign
from mssql_standin.sql.expressions import compile_condition, compile_scalar
from mssql_standin.sql.parse import parse_expression_tree, parse_select, parse_statement
from mssql_standin.sql.registry import Call, define
from mssql_standin.sql.scope import Scope
from mssql_standin.sqltypes import BIGINT, INT, NVARCHAR_MAX, SYSNAME, Value, parse_type
from tests.sql.harness import Bench, shown


@pytest.fixture(scope="module")
def bench() -> Bench:
    bench = Bench()
    bench.table("t", "id int not null; name nvarchar(5); code char(3)", (1, "one", "a"), (2, "two", None))
    bench.set("@p", "nvarchar(4000)", "abc")
    return bench


def stored(bench: Bench, expression: str, declaration: str) -> str | None:
    """What a column of that type holds after storing the expression, as text."""
    target = parse_type(declaration)
    scope = Scope()
    typed = assign(compile_scalar(parse_expression_tree(expression), bench, scope), target, "c", "TestDB.dbo.t")
    assert typed.type.name == target.name
    values = {name: bench.variables[name].value for name in scope.used.variables}
    bench.context.failure = None
    try:
        row = bench.connection.execute(f"SELECT {typed.sql}", values).fetchone()
    except Exception as error:
        raise (bench.context.failure or error) from error
    return shown(row[0], target)


STORED = [
    ("'ab'", "char(4)", "ab  "),
    ("N'ab'", "nchar(3)", "ab "),
    ("0x01", "binary(3)", "0x010000"),
    ("'ab    '", "varchar(3)", "ab "),
    ("@p", "nvarchar(3)", "abc"),
    ("@p", "varchar(10)", "abc"),
    ("NULL", "int", None),
    ("1.005", "decimal(5,2)", "1.01"),
    ("1.5", "int", "1"),
    ("'12'", "int", "12"),
    ("12", "varchar(5)", "12"),
    ("1", "bit", "1"),
    ("'2020-01-01 00:00:00.995'", "datetime", "2020-01-01 00:00:00.997"),
    ("'2020-01-01 00:00:30'", "smalldatetime", "2020-01-01 00:01:00.000"),
    ("CAST('2020-01-01 10:11:12.9999' AS datetime2)", "datetime2(3)", "2020-01-01 10:11:13.000"),
    ("CAST('2020-01-01 10:11:12' AS datetime2)", "date", "2020-01-01"),
    ("'6F9619FF-8B86-D011-B42D-00C04FC964FF'", "uniqueidentifier", "6F9619FF-8B86-D011-B42D-00C04FC964FF"),
    ("1.23456", "money", "1.2346"),
    ("'<a></a>'", "xml", "<a/>"),
    ("5", "decimal(38,10)", "5.0000000000"),
    ("CAST(5 AS tinyint)", "bigint", "5"),
]


@pytest.mark.parametrize(("expression", "declaration", "value"), STORED)
def test_stored_value(bench: Bench, expression: str, declaration: str, value: str | None) -> None:
    assert stored(bench, expression, declaration) == value


REFUSED = [
    ("'abcd'", "varchar(3)", 2628),
    ("@p", "nvarchar(2)", 2628),
    ("N'日本'", "nvarchar(1)", 2628),
    ("0x010203", "varbinary(2)", 2628),
    ("300", "tinyint", 220),
    ("3000000000", "int", 8115),
    ("1000", "decimal(5,2)", 8115),
    ("'x'", "int", 245),
    ("'abc'", "varbinary(10)", 257),
    ("CAST('2020-01-01' AS date)", "int", 206),
    ("GETDATE()", "int", 257),
    ("1", "date", 206),
    ("NEWID()", "int", 206),
    ("CAST('<a/>' AS xml)", "varchar(10)", 257),
]


@pytest.mark.parametrize(("expression", "declaration", "number"), REFUSED)
def test_refused_value(bench: Bench, expression: str, declaration: str, number: int) -> None:
    with pytest.raises(SqlError) as caught:
        stored(bench, expression, declaration)
    assert caught.value.number == number


def test_truncation_tells_table_column_and_value(bench: Bench) -> None:
    with pytest.raises(SqlError) as caught:
        stored(bench, "'abcdef'", "varchar(3)")
    assert caught.value.message == (
        "String or binary data would be truncated in table 'TestDB.dbo.t', column 'c'. Truncated value: 'abc'."
    )


def test_scope_serves_update_output_and_triggers(bench: Bench) -> None:
    relation = bench.relation(("t",))
    scope = Scope.of(relation, "t").add(relation, "inserted", "new").add(relation, "deleted", "old")
    assert compile_condition(parse_expression_tree("t.id = 5"), bench, scope) == f'{relation.sql}."c1" = 5'
    assert compile_scalar(parse_expression_tree("inserted.name"), bench, scope).sql == 'new."c2"'
    plain = Scope.of(relation, "t", "")
    assert compile_condition(parse_expression_tree("id > 1"), bench, plain) == '"c1" > 1'
    with pytest.raises(SqlError, match="209"):
        compile_scalar(parse_expression_tree("name"), bench, scope)


def test_scope_notes_what_was_used(bench: Bench) -> None:
    scope = Scope()
    compile_scalar(parse_expression_tree("(SELECT MAX(id) FROM t WITH (HOLDLOCK) WHERE name = @p)"), bench, scope)
    assert scope.used.variables == ["p"]
    assert [relation.table.name for relation in scope.used.relations if relation.table] == ["t"]
    assert [hints for _, hints in scope.used.hints] == [frozenset({"HOLDLOCK"})]


def test_other_rooms_define_functions(bench: Bench) -> None:
    def whereabouts(context: SessionContext, call: Call, number: int) -> Value:
        return f"{call.database or context.database}:{number}:{call.types[0]}"

    def fails(_: Call, value: int) -> Value:
        raise SqlError(50001, f"no {value}")

    def bigger(types: Any) -> Any:
        return BIGINT if types[0] == INT else NVARCHAR_MAX

    define("test.whereabouts", SYSNAME, 1, 1, whereabouts, True, arguments=(INT,))
    define("TestFails", INT, 1, 1, fails)
    define("TestRule", bigger, 1, 1, lambda _, value: value)
    assert bench.value("test.whereabouts('7')") == "TestDB:7:int"
    assert bench.value("[Other].test.WhereAbouts(7)") == "Other:7:int"
    assert bench.value("test.whereabouts(NULL)") is None
    assert (bench.type("testrule(1)"), bench.type("testrule('x')")) == ("bigint", "nvarchar(max)")
    with pytest.raises(SqlError, match="no 5"):
        bench.value("TestFails(5)")
    with pytest.raises(SqlError) as caught:
        bench.value("test.whereabouts(1, 2)")
    assert caught.value.number == 174


def test_alias_types_are_asked_for(bench: Bench) -> None:
    assert bench.type("CAST('x' AS dbo.Name)") == "nvarchar(50)"
    assert bench.type("CAST('x' AS sysname)") == "nvarchar(128)"


SYNTAX = [
    ("SELECT * FROM", "102"),
    ("SELECT 1 +", "102"),
    ("SELECT (1", "102"),
    ("SELECT 'open", "105"),
    ("SELECT CAST(1 int)", "Incorrect syntax near 'int'"),
    ("SELECT a, FROM t", "Incorrect syntax near"),
    ("SELECT a FROM t GROUP", "Incorrect syntax near 'GROUP'"),
    ("SELECT a FROM t OPTION (RECOMPILE", "102"),
    ("SELECT a b c FROM t", "Incorrect syntax near 'c'"),
    ("SELECT 1; SELECT 2", "102"),
    ("UPDATE t SET id = 1", "102"),
    ("", "102"),
]


@pytest.mark.parametrize(("text", "message"), SYNTAX)
def test_syntax_errors(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse_select(text)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t (a) VALUES (1), (2)",
        "UPDATE t SET a = 1 WHERE b = 2",
        "DELETE FROM t WHERE a = 1",
    ],
)
def test_data_changes_parse(text: str) -> None:
    assert parse_statement(text).key in ("insert", "update", "delete")


def test_trees_are_shared() -> None:
    assert parse_select("SELECT 1 AS x") is parse_select("SELECT 1 AS x")
