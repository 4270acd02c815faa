"""A capture of a stand-in as a configuration file."""

from pathlib import Path

from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


def properties_of(server: StandIn, lake: Path) -> dict[str, str]:
    """Properties of the capture that `child` runs."""
    return {
        "name": "shop",
        "topic.prefix": "shop",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.names": DATABASE,
        "driver.encrypt": "no",
        "lake.path": str(lake),
    }
