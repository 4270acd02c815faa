"""Kinds of property values: how text is parsed, and the message if it is not valid."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from cdc_assets.config.patterns import PatternError, compiled

_LIST_ENTRY = re.compile(r"(?:\A|,)((?:[^\\,]|\\.?)*)", re.DOTALL)
"""A comma separates list entries; `\\,` stands for a comma inside one, in a name or in a quantifier such as
`{1\\,3}`. A backslash and what is behind it are read as one, as in the connector: `a\\\\,b` are two entries."""
_COMMA = re.compile(r"(\\.)|,", re.DOTALL)
"""A comma, unless a backslash precedes it."""
LONGEST_TOPIC = 249
"""Maximum characters of a topic name (spec debezium-sqlserver §4.1)."""
LONGEST_MS = 2**31 - 1
"""Maximum milliseconds of a time span, almost 25 days: the connector's limit, and the limit of sockets, locks and
drivers."""
_LONGEST_LIBRARY = 500
"""Maximum bytes of a driver's name: unixODBC crashes at a thousand."""
_LONGEST_SYSNAME = 128
"""Maximum UTF-16 units of a name on the server."""
_LONGEST_INTEGER = 2**63 - 1
_HEX = "hex:"
_TABLE_KEYS = re.compile(r"[^;]+:(?P<columns>[^:;,]+(,[^:;,]+)*)\Z")
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value.

    Args:
        name: for the documentation, such as `boolean`.
        allowed: description of the accepted values for messages.
        parse: function from text to value; raises ValueError, whose message, if any, replaces `allowed`.
        values: all accepted texts, if they are a closed set.
        separator: text between the items of a list.
    """

    name: str
    allowed: str
    parse: Callable[[str], object]
    values: tuple[str, ...] = ()
    separator: str = ","

    def joined(self, entries: Sequence[str]) -> str:
        """The text of a list that a file gives as single items."""
        if self.separator != ",":
            return self.separator.join(entries)
        return ",".join(_COMMA.sub(lambda found: found[1] or r"\,", entry) for entry in entries)


def split_list(text: str) -> tuple[str, ...]:
    """Items of a comma list without surrounding blanks; empty items are dropped."""
    return tuple(entry for entry in _entries(text) if entry)


def _entries(text: str) -> list[str]:
    return [entry.strip().replace(r"\,", ",") for entry in _LIST_ENTRY.findall(text)]


def _plain(text: str) -> str:
    return text


def _placeholder(text: str) -> str:
    """As it is, or of octets, as the connector takes it."""
    if not text.startswith(_HEX):
        return text
    try:
        return bytes.fromhex(text.removeprefix(_HEX)).decode()
    except ValueError:
        raise ValueError from None


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text.strip()


def _library(text: str) -> str:
    name = _filled(text)
    if len(name.encode()) > _LONGEST_LIBRARY:
        raise ValueError
    return name


def _host(text: str) -> str:
    host = _filled(text)
    host.encode("idna")  # the encoding that sockets use; their UnicodeError is less clear
    return host


def _sysname(text: str) -> str:
    if not 0 < len(_filled(text).encode("utf-16-le")) // 2 <= _LONGEST_SYSNAME:
        raise ValueError
    return text.strip()


def _boolean(text: str) -> bool:
    try:
        return _WORDS[text.strip().lower()]
    except KeyError:
        raise ValueError from None


def _regexes(text: str) -> tuple[str, ...]:
    entries = split_list(text)
    for entry in entries:
        _compile(entry, "regular expressions, comma separated")
    return entries


def _regex(text: str) -> str:
    _compile(text, "regular expression")
    return text


def _compile(entry: str, wanted: str) -> None:
    try:
        compiled(entry)
    except PatternError as error:
        raise ValueError(f"{wanted}; {error}") from None


def _names(text: str) -> tuple[str, ...]:
    names = tuple(_entries(text))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError
    return names


def _topic_part(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", text.strip()):
        raise ValueError
    return text.strip()


def _topic_name(text: str) -> str:
    name = _topic_part(text)
    if name in (".", "..") or len(name) > LONGEST_TOPIC:
        raise ValueError
    return name


def _topic_name_or_none(text: str) -> str:
    return _topic_name(text) if text.strip() else ""


def _message_keys(text: str) -> tuple[str, ...]:
    entries = tuple(entry for part in text.split(";") if (entry := part.strip()))
    for entry in entries:
        found = _TABLE_KEYS.match(entry)
        if found is None:
            raise ValueError
        columns = [name.strip().lower() for name in found["columns"].split(",")]
        if not all(columns) or len(set(columns)) < len(columns):
            raise ValueError
    for _, expressions in key_expressions(entries):
        for expression in expressions:
            _compile(expression, "regular expressions of tables and their columns")
    return entries


def key_expressions(entries: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The expressions of `message.key.columns`, which match the names of columns with those of their tables.

    As in the connector (measured), each column of an entry is an expression behind that of its table and a dot: `.*:id` is
    `.*.id`, which matches `dbo.orders.id`, and `dbo.orders.customer_id`, too.

    Args:
        entries: `table regex:column,column`.

    Yields:
        A table and a column as they are written, and what a name must match: one expression, or several, if that of the
        table is a list.
    """
    for entry in entries:
        table, _, columns = entry.rpartition(":")
        for column in map(str.strip, columns.split(",")):
            yield f"{table}:{column}", split_list(f"{table}.{column}")


def _operations(text: str) -> frozenset[str]:
    codes = frozenset(split_list(text.lower()))
    if not codes <= {"c", "u", "d", "t", "none"} or ("none" in codes and len(codes) > 1):
        raise ValueError
    return codes - {"none"}


TEXT = Kind("text", "any text", _plain)
PLACEHOLDER = Kind("text", "any text; or `hex:` and the octets of one in UTF-8", _placeholder)
FILLED = Kind("text", "non-empty text", _filled)
HOST = Kind("host", "a host name or address, of 1 to 63 letters between two dots", _host)
LIBRARY = Kind("name or path", f"text of 1 to {_LONGEST_LIBRARY} bytes", _library)
SYSNAME = Kind("name", "a name of 1 to 128 characters", _sysname)
BOOLEAN = Kind("boolean", "true or false", _boolean, ("true", "false"))
REGEXES = Kind("list of regular expressions", "regular expressions, comma separated", _regexes)
REGEX = Kind("regular expression", "a regular expression", _regex)
NAMES = Kind("list of names", "names, comma separated, each once", _names)
ENTRIES = Kind("list", "entries, comma separated", split_list)
TOPIC_PART = Kind("part of a topic name", "letters, digits, `_`, `-` and `.`", _topic_part)
TOPIC_NAME = Kind(
    "topic name", f"up to {LONGEST_TOPIC} letters, digits, `_`, `-` and `.`, but not `.` or `..`", _topic_name
)
OPTIONAL_TOPIC = replace(TOPIC_NAME, parse=_topic_name_or_none)
MESSAGE_KEYS = Kind(
    "message keys", "`table regex:column,column`, semicolon separated, each column once", _message_keys, separator=";"
)
OPERATIONS = Kind("operations", "c, u, d, t, comma separated, or none", _operations)


def integer(low: int, high: int = _LONGEST_INTEGER) -> Kind:
    """A whole number in a closed range."""

    def parse(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError
        return number

    bound = f"from {low} to {high}" if high < _LONGEST_INTEGER else f"of at least {low}"
    return Kind("integer", f"a whole number {bound}", parse)


def milliseconds(low: int = 0, high: int = LONGEST_MS) -> Kind:
    """A time span written in milliseconds; the value is seconds."""
    base = integer(low, high)

    def parse(text: str) -> float:
        return timedelta(milliseconds=int(str(base.parse(text)))).total_seconds()

    return Kind("milliseconds", f"{base.allowed}, in milliseconds", parse)


def whole_seconds(low: int = 0) -> Kind:
    """A time span written in milliseconds; the value is whole seconds, rounded up, as ODBC time-outs are."""
    base = integer(low, LONGEST_MS)
    return Kind("milliseconds", f"{base.allowed}, in milliseconds", lambda text: -(-int(str(base.parse(text))) // 1000))


def choice(*values: str, aliases: Mapping[str, str] | None = None) -> Kind:
    """One of a set of words, letter case ignored; each alias stands for one of them."""
    meaning = {value.lower(): value for value in values} | {
        key.lower(): value for key, value in (aliases or {}).items()
    }

    def parse(text: str) -> str:
        try:
            return meaning[text.strip().lower()]
        except KeyError:
            raise ValueError from None

    return Kind("choice", "one of " + ", ".join(values), parse, values)
