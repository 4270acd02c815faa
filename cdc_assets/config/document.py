"""`docs/configuration.md`, written from the property table."""

from itertools import groupby

from cdc_assets.config.load import environment_name
from cdc_assets.config.properties import PROPERTIES
from cdc_assets.config.property import Property, Status

_HEAD = """# Configuration

A capture is configured by a file of Debezium's SQL Server connector properties: JSON (plain, or the `{"name", "config"}`
form that Kafka Connect takes), a Java `.properties` file, or YAML (nested or dotted names; lists may be written as such;
values stay as they are written, so that a password `0123` or `no` needs no quotes).
A name that is not in this page, or a value that is not allowed, is an error that names the property, the value and what
is allowed. This page is generated from the table that the program itself uses (`cdc-assets properties --markdown`).

**Secrets** stay outside the file: `${env:NAME}` takes an environment variable, `${file:/path}` a whole file,
`${file:/path:key}` a key of a properties file. Placeholders may be anywhere in a value.

**Environment.** `CDC_` and the property name in capitals, with `_` for each `.` and `-`, replaces or adds a value:
`CDC_DATABASE_HOSTNAME` is `database.hostname`. Properties with a `<part>` in their name cannot be set this way. A variable whose name is nearly
one of these is named in a warning, unless a placeholder refers to it.

**Lists of regular expressions** are comma separated (`\\,` is a comma inside an expression, of a quantifier too). Each must match the whole
name, and letter case is ignored. They are Java's, as in the connector: `\\w`, `\\d`, `\\s` and letter case mean only those of ASCII, so `\\w+` does not
match `größe` or `订单`, and `.+` or `[^.]+` does. Names that a list would match only by letters of other scripts are warned of. What Java
reads otherwise is refused, with the reason. Include and exclude lists of one kind exclude each other. Counts such as `{32}` may repeat up to 10,000 characters. An expression that tries for more
than a second to match a name is an error that names its property: at the start it ends the run; a table, column or capture
instance that appears while the capture runs is left out or fails alone, and the others continue.

**In a `.properties` file** a backslash must be doubled (`dbo\\\\.orders`), as Java demands. In JSON too. In YAML it need not be.
"""


_REMARKS = {
    Status.SUPPORTED: "",
    Status.REFUSED: " *Not yet supported*: {}.",
    Status.IGNORED: " *Without effect here*: {}.",
}


def markdown() -> str:
    """The whole page."""
    groups = [_group(name, list(rows)) for name, rows in groupby(PROPERTIES, key=lambda row: row.group)]
    return "\n".join([_HEAD, *groups])


def _group(name: str, rows: list[Property]) -> str:
    lines = [f"## {name}", ""]
    if rows[0].status is Status.SUPPORTED:
        lines += ["| property | value | default | meaning |", "|---|---|---|---|"]
        lines += [_supported(row) for row in rows]
    else:
        verb = "given, they are named in a warning" if rows[0].status is Status.IGNORED else "given, they are refused"
        lines += [f"Known, but {verb}.", "", "| property | meaning | why |", "|---|---|---|"]
        lines += [f"| {_name(row)} | {_cell(row.doc)} | {_cell(row.reason)} |" for row in rows]
    return "\n".join([*lines, ""])


def _supported(row: Property) -> str:
    default = "**required**" if row.required else f"`{row.default}`" if row.default else "–"
    doc = row.doc + _REMARKS[row.status].format(row.reason)
    note = f" *{row.note}*" if row.note else ""
    return f"| {_name(row)} | {_cell(row.kind.allowed)} | {default} | {_cell(doc + note)} |"


def _name(row: Property) -> str:
    return f"`{row.name}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def detail(row: Property) -> list[tuple[str, str]]:
    """Everything known about one property, as label and text, for the command line."""
    facts = [
        ("property", row.name),
        ("meaning", row.doc),
        ("value", row.kind.allowed),
        ("default", row.default or ("required" if row.required else "none")),
        ("status", row.status.value + (f": {row.reason}" if row.reason else "")),
    ]
    if not row.patterned:
        facts.append(("environment", environment_name(row.name)))
    if row.note:
        facts.append(("note", row.note))
    return facts
