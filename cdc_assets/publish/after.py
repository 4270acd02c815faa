"""The commit LSN after which events are published, by database: each database has a log of its own, and LSNs of two have no order.

An LSN without a database is kept under an empty name. A first start takes one only where there is one database. Markers of earlier versions
have one for all databases; it stays what it was until a start names one for each.
"""

from collections.abc import Mapping, Sequence

from cdc_assets.errors import ConfigurationError

After = Mapping[str, str]
"""LSNs by database; what is not named is published from the beginning."""


def after_in(after: After, database: str) -> str:
    """The LSN after which events of a database are published; empty for all of them.

    Args:
        database: its name; empty for topics of several databases (`divided`).
    """
    return after.get(database, after.get("", ""))


def by_database(after: After, databases: Sequence[str]) -> After:
    """The same under the names of a lake's databases; an LSN without a name gets that of the only one."""
    known = {name.lower(): name for name in databases}
    only = databases[0] if len(databases) == 1 else ""
    return {known.get(name.lower(), name) or only: lsn for name, lsn in after.items()}


def require_databases(after: After, databases: Sequence[str]) -> None:
    """Check that each LSN is of a database.

    Args:
        after: as of `by_database`.

    Raises:
        ConfigurationError: one has no database, or another one.
    """
    for name, lsn in after.items():
        if databases and name not in databases:
            raise ConfigurationError(
                "--from-lsn",
                f"{name}={lsn}" if name else lsn,
                f"DATABASE=LSN with one of {', '.join(databases)}, because LSNs of two databases have no order",
                f"write {options(dict.fromkeys(databases, 'LSN'))}, each with an LSN of its own "
                "database; a database that is not named is published from the beginning",
            )


def options(after: After) -> str:
    """The options of a command that say so."""
    return " ".join(f"--from-lsn {name}={lsn}" if name else f"--from-lsn {lsn}" for name, lsn in sorted(after.items()))
