"""Choice of the ODBC driver, and its connection string.

A registered ODBC Driver 17 or later comes first. Otherwise the driver that comes with mssql-python is used in place:
its message files are found relative to it, and unixODBC takes a path as well as a name. It is found by pattern, never
by name, because its version changes with that package.
"""

import platform
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from cdc_assets.adapters.sqlserver.errors import number_in
from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.errors import ConfigurationError, ConnectionLostError

DEFAULT_PORT = 1433
_CANNOT_OPEN_DATABASE = 4060
_REGISTERED = re.compile(r"ODBC Driver (1[7-9]|[2-9]\d) for SQL Server\Z")
_PLAIN_HOST = re.compile(r"[A-Za-z0-9._-]+\Z")
_FILES = {"linux": "libmsodbcsql-*.so*", "darwin": "libmsodbcsql*.dylib", "win32": "msodbcsql*.dll"}
_MACHINES = {"x86_64": ("x86_64", "x64", "amd64"), "aarch64": ("arm64", "aarch64")}


def find_driver(registered: Sequence[str]) -> str:
    """Name or path of the ODBC driver.

    Args:
        registered: names in odbcinst.ini (or the Windows registry).

    Raises:
        ConfigurationError: there is none.
    """
    names = [name for name in registered if _REGISTERED.match(name)]
    if names:
        return max(names, key=lambda name: int(re.sub(r"\D", "", name)))
    packaged = _packaged_drivers()
    if packaged:
        return str(packaged[0])
    raise ConfigurationError(
        "ODBC driver",
        ", ".join(registered) or "none registered",
        "ODBC Driver 18 for SQL Server",
        "install msodbcsql18",
    )


def _packaged_drivers() -> list[Path]:
    """Drivers inside mssql-python's package for this machine, that of this distribution first."""
    spec = find_spec("mssql_python_odbc")
    if spec is None or spec.origin is None:
        return []
    machine = platform.machine().lower()
    folders = next((names for names in _MACHINES.values() if machine in names), (machine,))
    found = [
        path
        for path in sorted((Path(spec.origin).parent / "libs").rglob(_FILES.get(sys.platform, "libmsodbcsql*")))
        if set(folders) & set(path.parts)
    ]
    like = _distribution()
    return sorted(found, key=lambda path: not any(part in like for folder in path.parts for part in folder.split("_")))


def _distribution() -> frozenset[str]:
    """Names of this Linux distribution and of related ones."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return frozenset()
    return frozenset(f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".lower().split())


def keywords(settings: ConnectionSettings) -> dict[str, str]:
    """Connection keywords that both drivers accept, without `Driver` and `APP`, which mssql-python reserves.

    A single configured database is the session's database, so that Azure SQL Database works; with several, statements
    name the database.
    """
    found = {
        "Server": _server(settings),
        "Encrypt": settings.encrypt,
        "TrustServerCertificate": "yes" if settings.trust_server_certificate else "no",
    }
    if len(settings.databases) == 1:
        found["Database"] = settings.databases[0]
    if settings.user:
        found |= {"UID": settings.user, "PWD": settings.password}
    return found | {name: value for name, value in settings.extra if name != "Driver"}


def without_database(pairs: Mapping[str, str], refusal: str) -> dict[str, str] | None:
    """Keywords for a second attempt in the login's own database, whose statements name the configured one anyway.

    A login into a database that is offline or being restored fails, but the server can report its state.

    Args:
        pairs: keywords of the first attempt.
        refusal: error message of the driver.

    Returns:
        None if the login was not refused because of the database.
    """
    if "Database" not in pairs or number_in(refusal) != _CANNOT_OPEN_DATABASE:
        return None
    return {name: value for name, value in pairs.items() if name != "Database"}


def _server(settings: ConnectionSettings) -> str:
    """`host,port`; with an instance its name, and the port only if it was given: then the drivers do not query SQL
    Server Browser."""
    if settings.instance:
        port = f",{settings.port}" if settings.port else ""
        return f"{settings.host}\\{settings.instance}{port}"
    return f"{settings.host},{settings.port or DEFAULT_PORT}"


def server_name(settings: ConnectionSettings) -> str:
    """Host with instance or port, for messages."""
    if settings.instance:
        return f"{settings.host}\\{settings.instance}" + (f":{settings.port}" if settings.port else "")
    return f"{settings.host}:{settings.port or DEFAULT_PORT}"


def check_reachable(settings: ConnectionSettings) -> None:
    """Open and close a TCP connection, because the driver tries until its login time-out without reporting the reason.

    Not done for an instance whose port SQL Server Browser returns, and for addresses in notations of the driver.

    Raises:
        ConnectionLostError: with the operating system's reason.
    """
    if (settings.instance and not settings.port) or not _PLAIN_HOST.match(settings.host):
        return
    try:
        socket.create_connection((settings.host, settings.port or DEFAULT_PORT), settings.login_timeout_s).close()
    except OSError as error:
        raise ConnectionLostError(
            f"Cannot reach {server_name(settings)}: {error.strerror or error}. "
            "Next: check database.hostname, database.port, the network, and that the server runs"
        ) from error


def driver_option(settings: ConnectionSettings) -> str | None:
    """The configured driver, or None."""
    return dict(settings.extra).get("Driver")


def connection_string(pairs: dict[str, str]) -> str:
    """Keywords and values with values braced, a `}` inside doubled.

    https://learn.microsoft.com/en-us/sql/connect/odbc/dsn-connection-string-attribute
    """
    return ";".join(f"{name}={{{value.replace('}', '}}')}}}" for name, value in pairs.items())
