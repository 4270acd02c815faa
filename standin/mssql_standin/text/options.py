"""SET options of a session."""

from dataclasses import dataclass
from typing import Final

from mssql_standin.contract import ISOLATION
from mssql_standin.errors import SqlError, syntax_error, unsupported
from mssql_standin.text.lexer import Token

_IGNORED: Final = frozenset(
    """
    ANSI_NULLS ANSI_PADDING ANSI_WARNINGS ANSI_DEFAULTS ANSI_NULL_DFLT_ON ANSI_NULL_DFLT_OFF QUOTED_IDENTIFIER
    CONCAT_NULL_YIELDS_NULL ARITHABORT ARITHIGNORE NUMERIC_ROUNDABORT CURSOR_CLOSE_ON_COMMIT FORCEPLAN REMOTE_PROC_TRANSACTIONS
    FIPS_FLAGGER NO_BROWSETABLE
    """.split()  # noqa: SIM905 - a word list reads better as text
)
"""Accepted as ON; the stand-in behaves as their defaults say."""

_MUST_STAY_ON: Final = frozenset({"ANSI_NULLS", "ANSI_PADDING", "ANSI_WARNINGS", "CONCAT_NULL_YIELDS_NULL"})
_SWITCHES: Final = frozenset({"NOCOUNT", "XACT_ABORT", "IMPLICIT_TRANSACTIONS", "NOEXEC", "FMTONLY", "PARSEONLY"})
_REFUSED: Final = frozenset({"SHOWPLAN_ALL", "SHOWPLAN_TEXT", "SHOWPLAN_XML", "STATISTICS", "OFFSETS"})
_DATE_FORMATS: Final = frozenset({"mdy", "dmy", "ymd", "ydm", "myd", "dym"})


@dataclass(slots=True)
class Options:
    """What SET changes and a connection reset restores."""

    nocount: bool = False
    xact_abort: bool = False
    implicit_transactions: bool = False
    noexec: bool = False
    fmtonly: bool = False
    parseonly: bool = False
    lock_timeout_ms: int = -1
    rowcount: int = 0
    date_first: int = 7
    text_size: int = 2147483647
    deadlock_priority: int = 0
    isolation: str = "READ COMMITTED"


def apply(options: Options, tokens: tuple[Token, ...]) -> None:
    """Do one SET statement.

    Raises:
        SqlError: 195 for an unknown option, 102 for a wrong value, 40510 for what the stand-in does not do.
    """
    words = [token.upper or token.value.upper() for token in tokens]
    name = words[0]
    if words[:3] == ["TRANSACTION", "ISOLATION", "LEVEL"]:
        _isolation(options, words[3:])
    elif name == "IDENTITY_INSERT" or (name in _REFUSED and words[-1] != "OFF"):
        raise unsupported(f"SET {name}")
    elif words[-1] in ("ON", "OFF"):
        _switch(options, [word for word in words[:-1] if word != ","], words[-1] == "ON")
    else:
        _value(options, name, tokens[1:])


def _isolation(options: Options, words: list[str]) -> None:
    level = " ".join(words)
    if level not in ISOLATION:
        raise syntax_error(words[0] if words else "")
    options.isolation = level


def _switch(options: Options, names: list[str], on: bool) -> None:
    for name in names:
        if name in _SWITCHES:
            setattr(options, name.lower(), on)
        elif name in _REFUSED:
            continue
        elif name not in _IGNORED:
            raise SqlError(195, f"'{name}' is not a recognized SET option.", 15)
        elif not on and name in _MUST_STAY_ON:
            raise unsupported(f"SET {name} OFF")


def _value(options: Options, name: str, tokens: tuple[Token, ...]) -> None:
    text = "".join(token.value for token in tokens)
    if name in ("LOCK_TIMEOUT", "ROWCOUNT", "DATEFIRST", "TEXTSIZE", "QUERY_GOVERNOR_COST_LIMIT"):
        _number(options, name, text)
    elif name == "DATEFORMAT":
        if text.lower() not in _DATE_FORMATS:
            raise SqlError(2741, f"SET DATEFORMAT date order '{text}' is invalid.")
        if text.lower() != "mdy":
            raise unsupported(f"SET DATEFORMAT {text}")
    elif name == "LANGUAGE":
        if text.lower() not in ("us_english", "english"):
            raise unsupported(f"SET LANGUAGE {text}")
    elif name == "DEADLOCK_PRIORITY":
        options.deadlock_priority = {"LOW": -5, "NORMAL": 0, "HIGH": 5}.get(text.upper(), 0)
    elif name == "CONTEXT_INFO":
        raise unsupported("SET CONTEXT_INFO")
    else:
        raise SqlError(195, f"'{name}' is not a recognized SET option.", 15)


def _number(options: Options, name: str, text: str) -> None:
    try:
        number = int(text)
    except ValueError as error:
        raise syntax_error(text) from error
    if name == "DATEFIRST" and not 1 <= number <= 7:
        raise SqlError(2744, f"{number} is not a valid DATEFIRST value.")
    field = {
        "LOCK_TIMEOUT": "lock_timeout_ms",
        "ROWCOUNT": "rowcount",
        "DATEFIRST": "date_first",
        "TEXTSIZE": "text_size",
    }
    if name in field:
        setattr(options, field[name], number)
