"""The control plane describes tables as `core.ports.Source` promises: columns, types, keys."""

from typing import Any
from unittest.mock import patch

import pytest

from cdc_assets.adapters.sqlserver.reached import Floor
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.settings import EventSettings
from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.core.schema import TableSchema
from cdc_assets.envelope.plan import ConnectorIdentity, plan_events
from cdc_assets_tests.contract.source.conftest import DATABASE, Server, drain, enable, table

pytestmark = pytest.mark.contract


DDL = """
CREATE TABLE dbo.[odd ]]name] (
    id int IDENTITY(1, 1) NOT NULL,
    code char(5) NOT NULL DEFAULT ('new'),
    text_ nvarchar(40) NULL,
    long_ nvarchar(max) NULL,
    bin_ varbinary(16) NULL,
    amount decimal(18, 4) NOT NULL DEFAULT ((1.5)),
    price money NULL,
    at datetime2(7) NULL,
    zoned datetimeoffset(3) NULL,
    time_ time(5) NULL,
    flag bit NULL,
    version rowversion NOT NULL,
    doubled AS (id * 2),
    CONSTRAINT pk_odd PRIMARY KEY (code, id)
)"""


@pytest.fixture
def odd(server: Server, source: SqlServerSource) -> TableSchema:
    server.execute(DDL, database=DATABASE)
    schema = source.table_schema(table("odd ]name"))
    assert schema is not None
    return schema


def test_structure(odd: TableSchema) -> None:
    assert odd.key == ("code", "id")
    assert [column.ordinal for column in odd.columns] == sorted(column.ordinal for column in odd.columns)
    facts = {column.name: column for column in odd.columns}
    assert (facts["id"].type_name, facts["id"].identity, facts["id"].nullable) == ("int", True, False)
    assert (facts["code"].length, facts["code"].default) == (5, "('new')")
    assert (facts["text_"].length, facts["long_"].length, facts["bin_"].length) == (40, -1, 16)
    assert (facts["amount"].precision, facts["amount"].scale, facts["amount"].default) == (18, 4, "((1.5))")
    assert (facts["price"].type_name, facts["price"].precision) == ("money", None)
    assert (facts["at"].scale, facts["zoned"].scale, facts["time_"].scale) == (7, 3, 5)
    assert facts["version"].type_name == "timestamp"
    assert facts["doubled"].computed is True
    assert facts["code"].collation


def test_key_is_the_first_unique_index_without_primary_key(server: Server, source: SqlServerSource) -> None:
    server.execute("CREATE TABLE dbo.u (a int NOT NULL, b int NOT NULL, c int)", database=DATABASE)
    assert source.table_schema(table("u")).key == ()  # type: ignore[union-attr]
    server.execute("CREATE UNIQUE INDEX z ON dbo.u (a)", database=DATABASE)
    server.execute("CREATE UNIQUE INDEX y ON dbo.u (b, a)", database=DATABASE)
    assert source.table_schema(table("u")).key == ("b", "a")  # type: ignore[union-attr]


def test_a_value_that_the_log_omits_is_no_null(server: Server, source: SqlServerSource) -> None:
    """Else any other change of the table made such a column nullable in events (measured with the connector)."""
    large = ["varchar(max)", "nvarchar(max)", "varbinary(max)", "xml", "text", "ntext", "image"]
    names = [f"c{number}" for number in range(len(large))]
    columns = ", ".join(f"{name} {kind} NOT NULL" for name, kind in zip(names, large, strict=True))
    server.execute(f"CREATE TABLE dbo.wide (id int NOT NULL PRIMARY KEY, n int NULL, {columns})", database=DATABASE)
    enable(server, "wide")
    values = ", ".join("0x01" if kind in ("varbinary(max)", "image") else "'<a/>'" for kind in large)
    server.execute(f"INSERT INTO dbo.wide VALUES (1, NULL, {values}), (2, NULL, {values})", database=DATABASE)
    server.execute("UPDATE dbo.wide SET n = 2", database=DATABASE)
    server.execute("DELETE FROM dbo.wide WHERE id = 2", database=DATABASE)
    drain(server)

    def nulls() -> frozenset[str]:
        [instance] = source.capture_instances(DATABASE)
        schema = source.table_schema(table("wide"))
        assert schema is not None
        return source.columns_with_nulls(instance, schema.columns, ZERO_LSN)

    assert nulls() == {"n"}
    for name, kind in zip(names, large, strict=True):
        if kind in ("text", "ntext", "image"):  # not by ALTER COLUMN
            continue
        server.execute(f"ALTER TABLE dbo.wide ALTER COLUMN {name} {kind} NULL", database=DATABASE)
        server.execute(f"UPDATE dbo.wide SET {name} = NULL", database=DATABASE)
    drain(server)
    assert nulls() == {"n", *names[:4]}


@pytest.mark.parametrize(
    ("primary", "indexes", "captured", "key"),
    [
        ("PRIMARY KEY", ("by_b ON dbo.keyed (b)",), "a, b", ("a",)),
        ("", ("by_a ON dbo.keyed (a)", "by_b ON dbo.keyed (b)"), "a, b", ("a",)),
        ("", ("by_a ON dbo.keyed (a)", "by_b ON dbo.keyed (b)"), "b", ()),
        ("", ("by_a ON dbo.keyed (a) WHERE a > 0", "by_b ON dbo.keyed (b)"), "a, b", ("b",)),
    ],
    ids=["primary key", "first index", "first index is not captured", "first index is filtered"],
)
def test_key_whatever_index_the_instance_names(
    server: Server, source: SqlServerSource, primary: str, indexes: tuple[str, ...], captured: str, key: tuple[str, ...]
) -> None:
    """Measured with the connector, which takes the filtered index too."""
    server.execute(f"CREATE TABLE dbo.keyed (a int NOT NULL {primary}, b int NOT NULL)", database=DATABASE)
    for index in indexes:
        server.execute(f"CREATE UNIQUE INDEX {index}", database=DATABASE)
    server.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'keyed', @role_name = NULL, "
        "@index_name = N'by_b', @captured_column_list = ?",
        captured,
        database=DATABASE,
    )
    [instance] = [each for each in source.capture_instances(DATABASE) if each.table == table("keyed")]
    schema = source.table_schema(table("keyed"))
    assert schema is not None
    plan = plan_events(schema, instance.columns, EventSettings("shop"), connector=ConnectorIdentity())
    assert plan.key == key


def test_table_that_is_not_there(source: SqlServerSource) -> None:
    assert source.table_schema(table("nope")) is None


def test_many_tables_at_once_are_described_as_each_alone(server: Server, source: SqlServerSource) -> None:
    names = [f"many{number}" for number in range(120)]  # more than one query asks for
    for number, name in enumerate(names):
        server.execute(f"CREATE TABLE dbo.{name} (a int NOT NULL, b{number} int NOT NULL)", database=DATABASE)
    server.execute("CREATE UNIQUE INDEX z ON dbo.many7 (b7, a)", database=DATABASE)
    asked = [table(name) for name in (*reversed(names), "nope", "MANY3")]
    rows, statements = source.session.rows_behind, []

    def counted(floor: Floor, statement: str, *parameters: Any) -> Any:
        statements.append(statement)
        return rows(floor, statement, *parameters)

    with patch.object(source.session, "rows_behind", counted):
        found = source.table_schemas(asked)
    assert len(statements) == 5, "the numbers of all, then columns and keys; and again of those in another letter case"
    assert list(found) == [each for each in asked if each != table("nope")]
    assert found[table("many7")].key == ("b7", "a")
    assert found[table("MANY3")].columns == found[table("many3")].columns
    for name in ("many0", "many7", "many119"):
        assert found[table(name)] == source.table_schema(table(name))
