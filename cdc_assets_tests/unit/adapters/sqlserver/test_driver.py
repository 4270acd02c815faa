"""The driver is found, and connection strings survive any value."""

from pathlib import Path

import pytest
from mssql_python.connection_string_parser import _ConnectionStringParser

from cdc_assets.adapters.sqlserver.driver import connection_string, find_driver, keywords
from cdc_assets.config.settings import ConnectionSettings


def settings(**changes: object) -> ConnectionSettings:
    base: dict[str, object] = {"host": "db", "user": "u", "password": "p", "databases": ("Sales",)}
    return ConnectionSettings(**{**base, **changes})  # type: ignore[arg-type]


def test_newest_registered_driver_wins() -> None:
    names = [
        "FreeTDS",
        "ODBC Driver 17 for SQL Server",
        "ODBC Driver 18 for SQL Server",
        "ODBC Driver 13 for SQL Server",
    ]
    assert find_driver(names) == "ODBC Driver 18 for SQL Server"


def test_packaged_driver_is_found_by_pattern() -> None:
    path = Path(find_driver(["FreeTDS"]))
    assert path.exists()
    assert "msodbcsql" in path.name


@pytest.mark.parametrize(
    ("changes", "server"),
    [
        ({}, "db,1433"),
        ({"port": 1500}, "db,1500"),
        ({"instance": "SALES"}, "db\\SALES"),
        ({"instance": "SALES", "port": 1500}, "db\\SALES,1500"),
        ({"instance": "SALES", "port": 1433}, "db\\SALES,1433"),
    ],
)
def test_server(changes: dict[str, object], server: str) -> None:
    assert keywords(settings(**changes))["Server"] == server


def test_database_only_if_there_is_one() -> None:
    assert keywords(settings())["Database"] == "Sales"
    assert "Database" not in keywords(settings(databases=("a", "b")))


def test_no_login_without_user() -> None:
    pairs = keywords(settings(user="", password="", extra=(("Trusted_Connection", "yes"), ("Driver", "x"))))
    assert not {"UID", "PWD", "Driver"} & pairs.keys()
    assert pairs["Trusted_Connection"] == "yes"


@pytest.mark.parametrize("password", ["a;b", "a}b", "a{b}", "}};PWD=x;{", "=", " lead and trail "])
def test_any_value_survives_the_connection_string(password: str) -> None:
    text = connection_string(keywords(settings(password=password)))
    assert _ConnectionStringParser(validate_keywords=True)._parse(text)["pwd"] == password
