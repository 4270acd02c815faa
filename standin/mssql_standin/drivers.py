"""Where ODBC drivers lie, and connection strings for them.

The stand-in imports no driver. Microsoft's comes with the package that mssql-python brings
along; it is used in place, since it finds its message file by its own path (spec standin §2).
"""

import importlib.util
import platform
from pathlib import Path
from typing import Final

_FREETDS: Final = ("/usr/lib/*/odbc/libtdsodbc.so", "/usr/lib*/libtdsodbc.so*", "/opt/homebrew/lib/libtdsodbc.so")
_MACHINES: Final = {"amd64": "x86_64", "aarch64": "arm64"}


def odbc18() -> Path:
    """Microsoft ODBC Driver 18.

    Raises:
        FileNotFoundError: the package that carries it is not installed, or has none for this machine.
    """
    spec = importlib.util.find_spec("mssql_python_odbc")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    machine = _MACHINES.get(platform.machine().lower(), platform.machine().lower())
    found = [
        path
        for folder in folders
        for path in sorted(Path(folder, "libs").rglob("libmsodbcsql*"))
        if machine in path.parts and "alpine" not in path.parts
    ]
    if not found:
        raise FileNotFoundError("ODBC Driver 18 not found: install mssql-python, whose driver package carries it")
    return found[0]


def freetds() -> Path:
    """FreeTDS's ODBC driver.

    Raises:
        FileNotFoundError: it is not installed.
    """
    found = [path for pattern in _FREETDS for path in Path("/").glob(pattern.lstrip("/"))]
    if not found:
        raise FileNotFoundError("FreeTDS's ODBC driver not found: install the package tdsodbc")
    return found[0]


def connection_string(
    driver: str, host: str, port: int, user: str, password: str, database: str, encrypt: str, certificate: Path | None
) -> str:
    """An ODBC connection string.

    Args:
        driver: `odbc18` or `freetds`.
        host: of the server.
        port: of the server.
        user: SQL login.
        password: of the login.
        database: to begin in; empty for the login's default.
        encrypt: `no`, `yes` or `strict`.
        certificate: PEM file that a strict connection trusts.

    Raises:
        ValueError: another driver, or FreeTDS with strict.
    """
    parts = {"UID": user, "PWD": "{" + password.replace("}", "}}") + "}"}
    if database:
        parts["Database"] = database
    if driver == "odbc18":
        parts = {"Driver": str(odbc18()), "Server": f"{host},{port}", **parts, "Encrypt": encrypt}
        if encrypt == "yes":
            parts["TrustServerCertificate"] = "yes"
        if encrypt == "strict":
            parts["ServerCertificate"] = str(certificate)
    elif driver == "freetds" and encrypt != "strict":
        cipher = "off" if encrypt == "no" else "require"
        parts = {"Driver": str(freetds()), "Server": host, "Port": str(port), **parts}
        parts |= {"TDS_Version": "7.4", "ClientCharset": "UTF-8", "Encryption": cipher}
    else:
        raise ValueError(f"driver {driver!r} with encrypt={encrypt!r}: use odbc18, or freetds without strict")
    return ";".join(f"{name}={value}" for name, value in parts.items())
