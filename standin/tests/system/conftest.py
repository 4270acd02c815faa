"""The engine with a small schema in `shop`."""

from collections.abc import Iterator

import pytest

from mssql_standin.engine.server import Engine
from tests.capture.client import Client

SCHEMA = """
CREATE TABLE dbo.customers (
    id int IDENTITY(1, 1) NOT NULL CONSTRAINT PK_customers PRIMARY KEY,
    code varchar(10) NOT NULL CONSTRAINT UQ_code UNIQUE,
    name nvarchar(50) NULL CONSTRAINT DF_name DEFAULT (N'new'),
    credit decimal(12, 2) NULL,
    twice AS (credit * 2),
    notes nvarchar(max) NULL,
    seen datetime2(7) NULL,
    version rowversion
);
CREATE TABLE dbo.orders (
    id int NOT NULL,
    line int NOT NULL,
    customer int NOT NULL CONSTRAINT FK_customer REFERENCES dbo.customers (id) ON DELETE CASCADE,
    CONSTRAINT PK_orders PRIMARY KEY (id, line)
);
CREATE INDEX IX_customer ON dbo.orders (customer DESC) INCLUDE (line);
CREATE TABLE dbo.heap (a_b int, ab int);
"""


@pytest.fixture
def client() -> Iterator[Client]:
    """A session in `shop`."""
    engine = Engine()
    Client(engine).run("CREATE DATABASE shop")
    found = Client(engine, "shop")
    found.run(SCHEMA)
    yield found
    engine.close()
