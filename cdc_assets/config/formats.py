"""Forms of configuration files: the text of a JSON, YAML or Java properties document becomes property texts by name.

A YAML document may be the `defs.yaml` of a component, which has them below `attributes`, or names another file there.
Values stay as they are written. Limits on nesting and on the size of expanded aliases bound the time to read any file.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from cdc_assets.config import kinds
from cdc_assets.config.properties import PROPERTIES
from cdc_assets.config.property import shown_name
from cdc_assets.errors import ConfigurationError

MAX_BYTES = 1024 * 1024
"""Maximum size of a file, and of a YAML document with expanded aliases."""
_MAX_LEVELS = 50
_LONGEST_NAME = 1_000
_LINE_END = re.compile(r"\r\n|\r|\n")
_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*(?P<sep>[ \t\f]*[=:][ \t\f]*|[ \t\f]+)")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_TEMPLATE = re.compile(r"\{\{\s*env(?:\.(\w+)|\(\s*['\"](\w+)['\"]\s*\))\s*\}\}")
"""How a `defs.yaml` may name a variable of the environment."""
COMPONENT_FILE = "attributes.config_file"
"""Name under which a document that refers to another file gives that file's path."""
_KINDS = {row.name: row.kind for row in PROPERTIES}


def parse(suffix: str, text: str) -> dict[str, str]:
    """Property texts of a document.

    Args:
        suffix: one of `READERS`.

    Raises:
        ConfigurationError: it is malformed, too deep, or grows too large.
    """
    try:
        return READERS[suffix](text)
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> ConfigurationError:
    return ConfigurationError(
        "nesting", "too deep", f"values nested at most {_MAX_LEVELS} levels deep", "write the names with dots"
    )


def _read_json(text: str) -> dict[str, str]:
    """Numbers stay text, so that an error about one that is too long or too large can name its property."""
    try:
        return flat(
            json.loads(text, object_pairs_hook=_without_repetition, parse_int=str, parse_float=str, parse_constant=str)
        )
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            "JSON", error.msg, "a valid document", f"look at line {error.lineno}, column {error.colno}"
        ) from error


class _Texts(yaml.SafeLoader):
    """YAML whose plain scalars stay as they are written: a password `0123` or `12:30` is no number, `no` no boolean."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the parent
        first: [(tag, form) for tag, form in found if tag.endswith((":null", ":merge"))]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {  # noqa: RUF012 - as in the parent
        tag: construct
        for tag, construct in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.endswith((":null", ":str", ":seq", ":map"))
    }

    def get_single_node(self) -> yaml.Node | None:
        """The document; an error if it is too large with expanded aliases."""
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _size(node, {}) > MAX_BYTES:
            raise ConfigurationError(
                "YAML", "aliases", f"at most {MAX_BYTES:,} characters with all aliases expanded", "use fewer"
            )
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        _without_repetition((key.value, None) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        return dict(super().construct_mapping(node, deep))


def _size(node: yaml.Node, known: dict[int, int | None]) -> int:
    """Characters and nodes of a document with expanded aliases; each node is visited once."""
    if id(node) in known:
        size = known[id(node)]
        if size is None:
            raise ConfigurationError("YAML", "an alias", "no value that contains itself", "remove the alias")
        return size
    known[id(node)] = None
    if isinstance(node, yaml.ScalarNode):
        size = 1 + len(node.value)
    else:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
        size = 1 + sum(_size(part, known) for part in parts)
    known[id(node)] = size
    return size


def _read_yaml(text: str) -> dict[str, str]:
    try:
        found = yaml.load(text, _Texts)  # noqa: S506 - a SafeLoader
        if isinstance(found, dict) and isinstance(found.get("attributes"), dict):
            return _of_component(yaml.safe_load(text)["attributes"])
        return flat(found)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"look at line {mark.line + 1}, column {mark.column + 1}" if mark else "correct the file"
        problem = _QUOTED.sub("…", error.problem or "it")  # quoted text may be a secret
        raise ConfigurationError("YAML", problem, "a valid document", place) from None
    except ConfigurationError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError):  # the latter two are raised for an escape such as `\UFFFFFFFF`
        raise ConfigurationError("YAML", "an unreadable character", "a valid document", "correct the file") from None


def _of_component(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Texts of a component's `properties`, which Dagster reads by YAML's own rules; or the name of its `config_file`.

    Raises:
        ConfigurationError: it has neither, or a value is a template.
    """
    if isinstance(attributes.get("properties"), dict):
        return {name: _without_templates(name, text) for name, text in flat(attributes["properties"]).items()}
    if isinstance(file := attributes.get("config_file"), str):
        return {COMPONENT_FILE: _without_templates("config_file", file)}
    given = ", ".join(map(str, attributes)) or "nothing"
    raise ConfigurationError(
        "attributes of a component", given, "properties or config_file of a capture", "name the defs.yaml of a capture"
    )


def _without_templates(name: str, text: str) -> str:
    """A value of `defs.yaml`, whose references to the environment are written as in other files."""
    plain = _TEMPLATE.sub(lambda match: f"${{env:{match[1] or match[2]}}}", text)
    if "{{" in plain:
        expected = "no template but that of a variable: only Dagster knows the others"
        raise ConfigurationError(shown_name(name), "{{ … }}", expected, "write ${env:NAME} or {{ env.NAME }}")
    return plain


def _without_repetition(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for name, value in pairs:
        if name in known:
            raise ConfigurationError("property", shown_name(name), "each property once", "remove one of the two")
        known[name] = value
    return known


def flat(document: object) -> dict[str, str]:
    """Texts by dotted name; Kafka Connect's `{"name": …, "config": {…}}` is unwrapped."""
    if not isinstance(document, dict):
        raise ConfigurationError(
            "configuration", type(document).__name__, "an object of properties", "correct the file"
        )
    if isinstance(document.get("config"), dict):
        inner = dict(document["config"])
        if "name" in document:
            inner.setdefault("name", document["name"])
        document = inner
    return _without_repetition(_leaves("", document, 1))


def _leaves(prefix: str, document: Mapping[Any, Any], level: int) -> Iterator[tuple[str, str]]:
    if level > _MAX_LEVELS:
        raise _too_deep()
    for key, value in document.items():
        name = f"{prefix}{key}"
        if len(name) > _LONGEST_NAME:
            expected = f"a name of at most {_LONGEST_NAME:,} characters"
            raise ConfigurationError("property", shown_name(name), expected, "correct it")
        if isinstance(value, dict):
            yield from _leaves(f"{name}.", value, level + 1)
        elif isinstance(value, list):
            yield name, _KINDS.get(name, kinds.REGEXES).joined([_text(name, entry) for entry in value])
        elif value is not None:
            yield name, _text(name, value)


_NO_NUMBER = 1e300
"""Above the range of every property; Python refuses to print integers of thousands of digits."""


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and abs(value) < _NO_NUMBER:  # in Python or a component; files give texts
        return str(value)
    form = type(value).__name__  # the value may hold a secret
    raise ConfigurationError(name, form, "text, a number, true, false or a list of them", "put it in quotes")


def parse_java_properties(text: str) -> dict[str, str]:
    r"""Texts of a Java properties file.

    As `java.util.Properties` reads it: `#` and `!` start comments, `=`, `:` or blanks end a name, a backslash at a
    line's end continues it, and otherwise escapes the next character: `\.` is `.`, so a regex needs `\\.`.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(_LINE_END.split(text)):
        match = _SEPARATOR.search(line)
        name, value = (line[: match.start("sep")], line[match.end("sep") :]) if match else (line, "")
        found[_unescape(name)] = _unescape(value)
    return found


def _logical_lines(lines: Iterable[str]) -> Iterator[str]:
    pending: list[str] = []
    for raw in lines:
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending.append(line[:-1])
        else:
            yield "".join([*pending, line])
            pending = []
    if pending:
        yield "".join(pending)


def _unescape(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    plain = re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", replacement, text)
    # `\ud83d\ude00` are two code units of one character
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


READERS = {".json": _read_json, ".properties": parse_java_properties, ".yaml": _read_yaml, ".yml": _read_yaml}
"""Reader by file name suffix."""
