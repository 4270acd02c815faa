"""How to connect, from properties: what of the JDBC driver's options the ODBC driver has, too."""

import difflib
from typing import Any

from cdc_assets.config.found import Found, of_pattern
from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.config.table.connection import (
    DRIVER_OPTIONS,
    ENCRYPTED,
    ENCRYPTED_REASON,
    JAVA_STORES,
    JDBC_ONLY,
    STORE_REASON,
)
from cdc_assets.errors import ConfigurationError


def driver_options(found: Found) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """ODBC keywords with their values, and options that only the JDBC driver has."""
    options: dict[str, str] = {}
    ignored: list[tuple[str, str]] = []
    for name, holes, text in of_pattern(found, "driver.<option>"):
        option = holes["option"].lower()
        if option in DRIVER_OPTIONS:
            options[DRIVER_OPTIONS[option]] = text
        elif option.startswith(JAVA_STORES):
            ignored.append((name, STORE_REASON))
        elif option == ENCRYPTED and text.strip().lower() != "disabled":
            ignored.append((name, ENCRYPTED_REASON))
        elif option in JDBC_ONLY:
            ignored.append((name, "only Microsoft's JDBC driver has it"))
        else:
            near = difflib.get_close_matches(option, [*DRIVER_OPTIONS, "encrypt", "trustservercertificate"], n=1)
            hint = f"did you mean driver.{near[0]}" if near else "see `cdc-assets properties driver`"
            raise ConfigurationError("driver option", name, "an option of the ODBC or JDBC driver", hint)
    named = {"driver.authentication": "Authentication", "odbc.driver": "Driver"}
    options |= {named[row.name]: text for _, row, text in found if row.name in named}
    return tuple(options.items()), tuple(ignored)


def connection_settings(values: dict[str, Any], options: tuple[tuple[str, str], ...]) -> ConnectionSettings:
    """The settings, if they say how to log in."""
    keywords = {keyword for keyword, _ in options}
    if not values.get("user") and not keywords & {"Authentication", "Trusted_Connection"}:
        raise ConfigurationError(
            "database.user", values.get("user"), "a login, unless driver.authentication says how to log in", "add it"
        )
    return ConnectionSettings(**{"user": "", "password": ""} | values, extra=options)
