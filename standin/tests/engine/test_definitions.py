"""CREATE, ALTER, DROP; sp_rename; what a new process finds."""

from pathlib import Path

import pytest

from mssql_standin.engine.server import Engine
from mssql_standin.text.catalog_text import catalog_text
from tests.engine.collect import Client, open_client


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("1", "((1))"),
        ("(1)", "((1))"),
        ("-1", "((-1))"),
        ("1.50", "((1.50))"),
        ("'new'", "('new')"),
        ("N'it''s'", "(N'it''s')"),
        ("NULL", "(NULL)"),
        ("GETDATE()", "(getdate())"),
        ("CURRENT_TIMESTAMP", "(getdate())"),
        ("SysDateTime()", "(sysdatetime())"),
        ("newid()", "(newid())"),
        ("amount*2", "([amount]*(2))"),
        ("[a] + [b]", "([a]+[b])"),
        ("0x01", "(0x01)"),
    ],
)
def test_catalogue_text(written: str, shown: str) -> None:
    assert catalog_text(written) == shown


def test_create_table_in_the_catalogue(client: Client) -> None:
    client.do("""
    CREATE TABLE dbo.t (
        id int IDENTITY(5, 2) NOT NULL,
        a varchar(10) COLLATE Latin1_General_BIN2 NOT NULL CONSTRAINT df DEFAULT 'x',
        b decimal(10, 2) SPARSE NULL,
        c AS (a + 'y') PERSISTED,
        g uniqueidentifier ROWGUIDCOL NOT NULL DEFAULT NEWID(),
        CONSTRAINT pk PRIMARY KEY NONCLUSTERED (id DESC, a) WITH (PAD_INDEX = OFF) ON [PRIMARY],
        CONSTRAINT uq UNIQUE CLUSTERED (a),
        INDEX ix (b)
    ) ON [PRIMARY]
    """)
    columns = client.rows(
        "SELECT name, is_nullable, is_identity, is_computed, max_length FROM sys.columns WHERE object_id = OBJECT_ID('t') ORDER BY column_id"
    )
    assert columns == [
        ("id", 0, 1, 0, 4),
        ("a", 0, 0, 0, 10),
        ("b", 1, 0, 0, 9),
        ("c", 0, 0, 1, 11),
        ("g", 0, 0, 0, 16),
    ]
    indexes = client.rows(
        "SELECT name, index_id, type, is_unique, is_primary_key FROM sys.indexes WHERE object_id = OBJECT_ID('dbo.t') ORDER BY index_id"
    )
    assert indexes == [("uq", 1, 1, 1, 0), ("pk", 2, 2, 1, 1), ("ix", 3, 2, 0, 0)]
    client.do("INSERT t (a) VALUES ('A'), ('a')")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("CREATE TABLE t (id int)", 2714),
        ("CREATE TABLE nosuch.x (id int)", 2760),
        ("CREATE TABLE x (a int, A int)", 2705),
        ("CREATE TABLE x (a nosuch)", 2715),
        ("CREATE TABLE x (a int PRIMARY KEY, b int PRIMARY KEY)", 1779),
        ("CREATE TABLE x (a int NULL, CONSTRAINT p PRIMARY KEY (nosuch))", 1911),
        ("CREATE TABLE x (a int IDENTITY, b int IDENTITY)", 2744),
        ("CREATE TABLE x (a varchar(3) IDENTITY)", 2749),
        ("CREATE TABLE x (a int REFERENCES nosuch (id))", 1767),
        ("CREATE TABLE x (a int REFERENCES t (v))", 1776),
        ("DROP TABLE nosuch", 3701),
        ("TRUNCATE TABLE nosuch", 4701),
        ("ALTER TABLE nosuch ADD a int", 4902),
        ("ALTER TABLE t ADD v int", 2705),
        ("ALTER TABLE t ADD w int NOT NULL", 4901),
        ("ALTER TABLE t ALTER COLUMN nosuch int", 4924),
        ("ALTER TABLE t DROP COLUMN nosuch", 4924),
        ("ALTER TABLE t DROP COLUMN id", 5074),
        ("ALTER TABLE t DROP CONSTRAINT nosuch", 3728),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (v > 100)", 40510),
        ("ALTER TABLE t ADD CONSTRAINT c DEFAULT 1 FOR v", 40510),
        ("CREATE UNIQUE INDEX i ON t (v)", 1505),
        ("CREATE INDEX i ON t (nosuch)", 1911),
        ("DROP INDEX nosuch ON t", 3701),
        ("DROP INDEX pk ON t", 3723),
        ("CREATE DATABASE D", 1801),
        ("DROP DATABASE nosuch", 3701),
        ("BEGIN TRAN CREATE DATABASE X", 226),
        ("CREATE FUNCTION f () RETURNS int AS BEGIN RETURN 1 END", 40510),
    ],
)  # fmt: skip
def test_refusals(client: Client, text: str, number: int) -> None:
    client.do("CREATE TABLE t (id int CONSTRAINT pk PRIMARY KEY, v int) INSERT t VALUES (1, 1), (2, 1)")
    assert client.errors(text) == [number]
    client.session.rollback()
    assert client.rows("SELECT * FROM t ORDER BY id") == [(1, 1), (2, 1)]


def test_add_columns(client: Client) -> None:
    client.do("CREATE TABLE t (id int PRIMARY KEY) INSERT t VALUES (1), (2)")
    client.do("""
    ALTER TABLE t ADD a int NULL, b int NOT NULL CONSTRAINT df_b DEFAULT 7
    ALTER TABLE t ADD c int NULL DEFAULT 8
    ALTER TABLE t ADD d int NULL DEFAULT 9 WITH VALUES, e AS (b + 1)
    ALTER TABLE t ADD n int IDENTITY(10, 5)
    """)
    assert client.rows("SELECT * FROM t ORDER BY id") == [(1, None, 7, None, 9, 8, 10), (2, None, 7, None, 9, 8, 15)]
    client.do("INSERT t (id) VALUES (3)")
    assert client.rows("SELECT * FROM t WHERE id = 3") == [(3, None, 7, 8, 9, 8, 20)]


def test_alter_column_converts_rows_or_leaves_everything(client: Client) -> None:
    client.do(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(10)) CREATE INDEX ix ON t (v) INSERT t VALUES (1, '12'), (2, NULL)"
    )
    client.do("ALTER TABLE t ALTER COLUMN v int")
    assert client.rows("SELECT v FROM t ORDER BY id") == [(12,), (None,)]
    assert client.errors("ALTER TABLE t ALTER COLUMN v int NOT NULL") == [515]
    client.do(
        "UPDATE t SET v = 13 WHERE id = 2 ALTER TABLE t ALTER COLUMN v nvarchar(5) NOT NULL UPDATE t SET v = 'abc' WHERE id = 1"
    )
    assert client.errors("ALTER TABLE t ALTER COLUMN v int") == [245]
    assert client.rows("SELECT v FROM t ORDER BY id") == [("abc",), ("13",)]
    assert client.errors("ALTER TABLE t ALTER COLUMN v nvarchar(2)") == [2628]


def test_drop_columns_and_constraints(client: Client) -> None:
    client.do("""
    CREATE TABLE t (id int CONSTRAINT pk PRIMARY KEY, a int CONSTRAINT df DEFAULT 1, b int, c int CONSTRAINT uq UNIQUE)
    INSERT t VALUES (1, 2, 3, 4)
    ALTER TABLE t DROP CONSTRAINT df, CONSTRAINT uq
    ALTER TABLE t DROP COLUMN a, b
    ALTER TABLE t DROP CONSTRAINT pk
    INSERT t VALUES (1, 4)
    """)
    assert client.rows("SELECT * FROM t") == [(1, 4), (1, 4)]
    assert client.rows("SELECT name, column_id FROM sys.columns WHERE object_id = OBJECT_ID('t')") == [
        ("id", 1),
        ("c", 4),
    ]


def test_rename(client: Client) -> None:
    client.do("CREATE TABLE t (id int CONSTRAINT pk PRIMARY KEY, a int) CREATE INDEX ix ON t (a)")
    client.do("EXEC sp_rename 'dbo.t.a', 'b', 'COLUMN' EXEC sp_rename 'dbo.t', 'u'")
    assert client.errors("SELECT b FROM u") == []
    assert client.rows("SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID('u') ORDER BY index_id") == [
        ("pk",),
        ("ix",),
    ]
    assert client.errors("EXEC sp_rename 'nosuch', 'x'") == [15225]


def test_filtered_unique_index(client: Client) -> None:
    client.do(
        "CREATE TABLE t (a int, b int) CREATE UNIQUE INDEX i ON t (a) WHERE b IS NOT NULL INSERT t VALUES (1, NULL), (1, NULL), (1, 1)"
    )
    assert client.errors("INSERT t VALUES (1, 2)") == [2601]


def test_schemas_types_and_databases(client: Client) -> None:
    client.do("""
    CREATE SCHEMA s
    CREATE TYPE dbo.phone FROM varchar(5) NOT NULL
    CREATE TABLE s.t (p dbo.phone)
    INSERT s.t VALUES ('123')
    CREATE DATABASE other
    """)
    assert client.errors("INSERT s.t VALUES ('123456')") == [2628]
    assert client.errors("DROP TYPE phone") == [3732]
    client.do("USE other CREATE TABLE t (id int) INSERT D.s.t SELECT '9' INSERT t VALUES (5)")
    assert client.rows("SELECT p, id FROM D.s.t, other..t ORDER BY p") == [("123", 5), ("9", 5)]
    assert client.errors("DROP DATABASE other") == [3702]
    client.do("USE D DROP DATABASE other DROP TABLE s.t DROP TYPE phone")
    assert client.errors("SELECT * FROM other.dbo.t") == [208]


def test_everything_is_found_again(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "sa", "secret")
    open_client(engine, "master").do("CREATE DATABASE D COLLATE Latin1_General_CS_AS")
    client = open_client(engine)
    client.do("""
    CREATE TABLE p (id int IDENTITY PRIMARY KEY, v rowversion, n nvarchar(9) DEFAULT 'd', x AS id * 2)
    CREATE TABLE c (p int REFERENCES p (id), INDEX ix (p DESC))
    INSERT p DEFAULT VALUES INSERT c VALUES (1)
    EXEC sys.sp_cdc_enable_db
    EXEC sys.sp_cdc_enable_table 'dbo', 'p', @role_name = NULL
    INSERT p DEFAULT VALUES
    """)
    before = client.rows("SELECT id, v, n, x FROM p")
    changes = client.value("SELECT COUNT(*) FROM cdc.dbo_p_CT")
    engine.close()
    again = Engine(tmp_path, "sa", "secret")
    try:
        client = open_client(again)
        assert client.rows("SELECT id, v, n, x FROM p") == before
        assert client.errors("INSERT c VALUES (7)") == [547]
        client.do("INSERT p DEFAULT VALUES")
        assert client.rows("SELECT MAX(id), COUNT(DISTINCT v) FROM p")[0][1] == 3
        assert client.value("SELECT COUNT(*) FROM cdc.dbo_p_CT") == changes + 1
    finally:
        again.close()
