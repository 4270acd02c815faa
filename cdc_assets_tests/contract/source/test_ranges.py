"""Key ranges cover a table without overlap, whatever the key's type, by the server's own comparison."""

import pytest

from cdc_assets.adapters.sqlserver import ranges as sqlserver_ranges
from cdc_assets.adapters.sqlserver.reached import Floor
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.ranges import where
from cdc_assets.core.schema import TableSchema
from cdc_assets_tests.contract.source.conftest import DATABASE, Server

pytestmark = pytest.mark.contract
ROWS = 60


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlserver_ranges, "MIN_ROWS_PER_RANGE", 2)


KEYS = {
    "dense int": ("int", "{n}"),
    "sparse int": ("bigint", "{n} * 1000003"),
    "negative": ("smallint", "{n} - 100"),
    "decimal": ("decimal(18, 3)", "{n} * 1.125"),
    "money": ("money", "{n} * 1.2345"),
    "float": ("float", "{n} / 7.0e0"),
    "date": ("date", "DATEADD(day, {n} * 11, '1999-01-01')"),
    "datetime": ("datetime", "DATEADD(millisecond, {n} * 1237, '2020-02-28T23:59:59.003')"),
    "datetime2": (
        "datetime2(7)",
        "DATEADD(nanosecond, {n} * 1100, CONVERT(datetime2(7), '2020-01-01T00:00:00.1234567'))",
    ),
    "datetimeoffset": (
        "datetimeoffset(7)",
        "DATEADD(minute, {n}, CONVERT(datetimeoffset(7), '2020-01-01T00:00:00.1234567+05:30'))",
    ),
    "time": ("time(7)", "DATEADD(second, {n}, CONVERT(time(7), '10:00:00.1234567'))"),
    "guid": ("uniqueidentifier", "CONVERT(uniqueidentifier, CONVERT(binary(16), {n} * 12345677))"),
    "binary": ("binary(4)", "CONVERT(binary(4), {n} * 7)"),
    "nvarchar": ("nvarchar(30)", "CONCAT(N'ключ ß ', {n} * 37 % 60)"),
    "varchar": ("varchar(30)", "CONCAT('k', {n} * 37 % 60, ' ''x')"),
    "char": ("char(6)", "CONCAT('k', {n})"),
}


def fill(server: Server, declared: str, expression: str) -> None:
    server.execute(f"CREATE TABLE dbo.k (k {declared} NOT NULL PRIMARY KEY, n int)", database=DATABASE)
    for number in range(1, ROWS + 1):
        server.execute(f"INSERT INTO dbo.k VALUES ({expression.format(n=number)}, {number})", database=DATABASE)


def plan(source: SqlServerSource, slices: int) -> tuple[TableSchema, list[KeyRange]]:
    schema = source.table_schema(TableId(DATABASE, "dbo", "k"))
    assert schema is not None
    return schema, list(source.key_ranges(schema, source.row_counts([schema])[schema.table], slices))


def sizes(source: SqlServerSource, schema: TableSchema, ranges: list[KeyRange]) -> list[int]:
    """Rows of each range; together they must be all rows, each once."""
    seen: list[object] = []
    counts = []
    for key_range in ranges:
        condition, parameters = where(schema, key_range)
        text = f"SELECT n FROM {schema.table.quoted}" + (f" WHERE {condition}" if condition else "")
        found = [row[0] for row in source.session.rows(text, *parameters)]
        seen += found
        counts.append(len(found))
    assert sorted(map(str, seen)) == sorted(
        map(str, [row[0] for row in source.session.rows(f"SELECT n FROM {schema.table.quoted}")])
    )
    return counts


@pytest.mark.parametrize("kind", KEYS)
def test_ranges_cover_the_table(server: Server, source: SqlServerSource, kind: str) -> None:
    fill(server, *KEYS[kind])
    schema, ranges = plan(source, 4)
    assert len(ranges) == 4
    assert (ranges[0].low, ranges[-1].high) == (None, None)
    assert sizes(source, schema, ranges) == [15, 15, 15, 15]


def test_few_values_of_a_leading_column(server: Server, source: SqlServerSource) -> None:
    server.execute("CREATE TABLE dbo.k (a varchar(3) NOT NULL, n int NOT NULL, PRIMARY KEY (a, n))", database=DATABASE)
    for number in range(40):
        server.execute(
            "INSERT INTO dbo.k VALUES (?, ?)", "x" if number < 30 else f"y{number % 2}", number, database=DATABASE
        )
    schema, ranges = plan(source, 8)
    counts = sizes(source, schema, ranges)
    assert max(counts) == 30
    assert len(ranges) <= 4


def test_nullable_key(server: Server, source: SqlServerSource) -> None:
    server.execute("CREATE TABLE dbo.k (k varchar(9) NULL, n int)", database=DATABASE)
    server.execute("CREATE UNIQUE INDEX u ON dbo.k (k)", database=DATABASE)
    server.execute("INSERT INTO dbo.k VALUES (NULL, 0)", database=DATABASE)
    for number in range(20):
        server.execute("INSERT INTO dbo.k VALUES (?, ?)", f"v{number}", number + 1, database=DATABASE)
    schema, ranges = plan(source, 4)
    assert len(ranges) > 1
    assert sum(sizes(source, schema, ranges)) == 21


def test_no_key_small_or_empty_table(server: Server, source: SqlServerSource) -> None:
    server.execute("CREATE TABLE dbo.k (n int)", database=DATABASE)
    assert plan(source, 4)[1] == [KeyRange(None, None, None)]
    server.execute("DROP TABLE dbo.k; CREATE TABLE dbo.k (n int NOT NULL PRIMARY KEY)", database=DATABASE)
    assert plan(source, 4)[1] == [KeyRange("n", None, None, "int")]
    server.execute("INSERT INTO dbo.k VALUES (1), (2), (3)", database=DATABASE)
    assert plan(source, 4)[1] == [KeyRange("n", None, None, "int")]


def test_many_tables_are_asked_for_their_keys_at_once(
    server: Server, source: SqlServerSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number:02d}" for number in range(12)]
    for name in names:
        server.execute(f"CREATE TABLE dbo.{name} (k int NOT NULL PRIMARY KEY)", database=DATABASE)
        server.execute(f"INSERT INTO dbo.{name} VALUES (1), (2), (3), (4), (5), (6)", database=DATABASE)
    asked: list[str] = []
    rows, rows_behind = source.session.rows, source.session.rows_behind

    def counted_behind(floor: Floor, statement: str, *parameters: object) -> object:
        asked.append(statement)
        return rows_behind(floor, statement, *parameters)

    def counted(statement: str, *parameters: object) -> object:
        asked.append(statement)
        return rows(statement, *parameters)

    monkeypatch.setattr(source.session, "rows", counted)
    monkeypatch.setattr(source.session, "rows_behind", counted_behind)
    schemas = source.table_schemas([TableId(DATABASE, "dbo", name) for name in names])
    counts = source.row_counts(list(schemas.values()))
    extents = source.key_extents(list(schemas.values()), counts)
    cut = {table: source.key_ranges(schema, counts[table], 3, extents[table]) for table, schema in schemas.items()}
    assert len(asked) == 4, "columns, keys, rows and bounds, each for all tables"
    assert set(extents.values()) == {(1, 6)}
    assert all(ranges == source.key_ranges(schemas[table], 6, 3) for table, ranges in cut.items())
    assert {len(ranges) for ranges in cut.values()} == {3}


def test_table_that_cannot_be_asked_holds_no_other_back(server: Server, source: SqlServerSource) -> None:
    fill(server, "int", "{n}")
    schema, ranges = plan(source, 4)
    server.execute("CREATE TABLE dbo.gone (k int NOT NULL PRIMARY KEY)", database=DATABASE)
    gone = source.table_schema(TableId(DATABASE, "dbo", "gone"))
    assert gone is not None
    server.execute("DROP TABLE dbo.gone", database=DATABASE)
    counts = {schema.table: ROWS, gone.table: ROWS}
    assert source.key_extents([schema, gone], counts) == {}
    assert list(source.key_ranges(schema, ROWS, 4)) == ranges
