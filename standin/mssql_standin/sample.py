"""The sample database: a small shop with change data capture on.

`SalesDb` has customers, products, orders, order lines and Debezium's signal table; the
columns cover the types a reader has to get right. Everything is plain T-SQL that a real
SQL Server runs as well.
"""

from collections.abc import Callable, Iterator

DATABASE = "SalesDb"
SIGNAL_TABLE = "dbz_signal"

_TABLES = (
    """
CREATE TABLE dbo.customers (
    id int IDENTITY(1, 1) NOT NULL CONSTRAINT pk_customers PRIMARY KEY,
    name nvarchar(80) NOT NULL,
    email varchar(120) NULL,
    country char(2) NOT NULL CONSTRAINT df_customers_country DEFAULT ('DE'),
    credit money NULL,
    active bit NOT NULL CONSTRAINT df_customers_active DEFAULT ((1)),
    reference uniqueidentifier NOT NULL CONSTRAINT df_customers_reference DEFAULT (newid()),
    born date NULL,
    created datetime2(7) NOT NULL CONSTRAINT df_customers_created DEFAULT (sysutcdatetime()),
    notes nvarchar(max) NULL
)""",
    """
CREATE TABLE dbo.products (
    sku varchar(20) NOT NULL CONSTRAINT pk_products PRIMARY KEY,
    title nvarchar(100) NOT NULL,
    price decimal(10, 2) NOT NULL,
    weight real NULL,
    stock smallint NOT NULL CONSTRAINT df_products_stock DEFAULT ((0)),
    available_from time(3) NULL,
    picture varbinary(max) NULL,
    version rowversion NOT NULL
)""",
    """
CREATE TABLE dbo.orders (
    id bigint IDENTITY(1000, 1) NOT NULL CONSTRAINT pk_orders PRIMARY KEY,
    customer_id int NOT NULL CONSTRAINT fk_orders_customers REFERENCES dbo.customers (id),
    state varchar(12) NOT NULL CONSTRAINT df_orders_state DEFAULT ('new'),
    ordered_at datetimeoffset(3) NOT NULL,
    paid_at datetime NULL,
    ship_by smalldatetime NULL,
    discount float NULL
)""",
    """
CREATE TABLE dbo.order_lines (
    order_id bigint NOT NULL CONSTRAINT fk_order_lines_orders REFERENCES dbo.orders (id),
    line tinyint NOT NULL,
    sku varchar(20) NOT NULL CONSTRAINT fk_order_lines_products REFERENCES dbo.products (sku),
    quantity int NOT NULL,
    price decimal(10, 2) NOT NULL,
    total AS (quantity * price),
    CONSTRAINT pk_order_lines PRIMARY KEY (order_id, line)
)""",
    f"CREATE TABLE dbo.{SIGNAL_TABLE} (id varchar(42) NOT NULL PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048) NULL)",
)

TABLES = ("customers", "products", "orders", "order_lines", SIGNAL_TABLE)
"""Captured tables, in an order in which foreign keys hold."""

_DESCRIPTIONS = (
    ("customers", "", "People and companies that order."),
    ("customers", "credit", "What the customer may still spend, in euro."),
    ("customers", "reference", "Printed on each letter."),
    ("products", "", "What is for sale."),
    ("products", "price", "Net price of a piece, in euro."),
    ("orders", "state", "How far the order has come."),
)
"""What is told about a table, or about one of its columns."""

_FIRST_NAMES = ("Ada", "Zoë", "Jürgen", "Łucja", "Søren", "美咲", "Nuno", "Aïcha")
_LAST_NAMES = ("Okafor", "Müller", "García", "Nguyễn", "山田", "O'Brien", "Kowalska", "Ångström")


def definitions() -> Iterator[str]:
    """Statements that make the tables and turn capture on, to be run in the database."""
    yield from _TABLES
    for table, column, text in _DESCRIPTIONS:
        of = f", @level2type = N'COLUMN', @level2name = N'{column}'" if column else ""
        yield (
            f"EXEC sys.sp_addextendedproperty @name = N'MS_Description', @value = N'{text}', @level0type = N'SCHEMA', "
            f"@level0name = N'dbo', @level1type = N'TABLE', @level1name = N'{table}'{of}"
        )
    yield "EXEC sys.sp_cdc_enable_db"
    for table in TABLES:
        yield (
            f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{table}', "
            "@role_name = NULL, @supports_net_changes = 0"
        )


def rows(customers: int = 200, products: int = 60, orders: int = 400) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Statements with parameters that fill the tables; equal arguments give equal rows, generated columns aside."""
    for number in range(customers):
        name = f"{_FIRST_NAMES[number % 8]} {_LAST_NAMES[number // 8 % 8]}"
        born = f"{1950 + number % 50}-{1 + number % 12:02d}-{1 + number % 28:02d}"
        yield (
            "INSERT dbo.customers (name, email, country, credit, born, notes) VALUES (?, ?, ?, ?, ?, ?)",
            (
                name,
                f"c{number}@example.com",
                ("DE", "FR", "JP", "PL")[number % 4],
                number * 12.5,
                born,
                None if number % 3 else "regular",
            ),
        )
    for number in range(products):
        yield (
            "INSERT dbo.products (sku, title, price, weight, stock, available_from) VALUES (?, ?, ?, ?, ?, ?)",
            (
                f"SKU-{number:04d}",
                f"Product № {number}",
                round(1.99 + number * 3.1, 2),
                number / 8,
                number * 3,
                "08:30:00.125",
            ),
        )
    for number in range(orders):
        yield (
            "INSERT dbo.orders (customer_id, state, ordered_at, discount) VALUES (?, ?, ?, ?)",
            (
                1 + number % customers,
                "new",
                f"2026-0{1 + number % 9}-11 10:{number % 60:02d}:00.250 +02:00",
                None if number % 5 else 0.05,
            ),
        )
        for line in range(1, 2 + number % 3):
            yield (
                "INSERT dbo.order_lines (order_id, line, sku, quantity, price) VALUES (?, ?, ?, ?, ?)",
                (1000 + number, line, f"SKU-{(number + line) % products:04d}", line, 9.99),
            )


def create(execute: Callable[..., object], **counts: int) -> None:
    """Make and fill the sample tables.

    Args:
        execute: runs one statement with its parameters in the sample database.
        counts: row counts as `rows` takes them.
    """
    for statement in definitions():
        execute(statement)
    for statement, parameters in rows(**counts):
        execute(statement, *parameters)
