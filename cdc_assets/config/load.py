"""Configuration files: JSON (plain or as Kafka Connect takes it), Java properties, YAML.

Values may hold `${env:NAME}`, `${file:/path}` (the whole file) and `${file:/path:key}` (a key of a properties file), so
that secrets stay outside. After that, an environment variable `CDC_` + the property name in capitals with `_` for each
`.` and `-` replaces a value or adds it: `CDC_DATABASE_HOSTNAME` stands for `database.hostname`. Only exact property
names can be given so, not patterned ones.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from cdc_assets.config import kinds
from cdc_assets.config.build import build_config
from cdc_assets.config.properties import PROPERTIES
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import ConfigurationError

ENVIRONMENT_PREFIX = "CDC_"
_PLACEHOLDER = re.compile(r"\$\{(\w+):([^}]*)\}")
_LINE_END = re.compile(r"\r\n|\r|\n")
_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*(?P<sep>\s*[=:]\s*|\s+)")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_KINDS = {row.name: row.kind for row in PROPERTIES}


def load_config(path: str | Path, environment: Mapping[str, str] | None = None) -> CaptureConfig:
    """Read, substitute, override, validate.

    Args:
        path: a `.json`, `.properties`, `.yaml` or `.yml` file.
        environment: variables for placeholders and overrides; the process's own if None.

    Raises:
        ConfigurationError: the file cannot be read, or something in it is wrong.
    """
    variables = os.environ if environment is None else environment
    texts = {name: _substitute(name, text, variables) for name, text in read_properties(Path(path)).items()}
    return build_config(texts | dict(overrides(variables)))


def configuration_files(place: Path) -> list[Path]:
    """The configuration file itself, or those of a folder with one file per capture, sorted by name.

    Raises:
        ConfigurationError: the place is missing or holds no configuration file.
    """
    files = [place] if place.is_file() else sorted(path for path in place.glob("*") if path.suffix.lower() in _READERS)
    if not files:
        raise ConfigurationError(
            "configuration",
            str(place),
            "a file, or a folder with files, ending in " + ", ".join(_READERS),
            "name it with --config or CDC_CONFIG, or run from the project's folder",
        )
    return files


def overrides(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Properties that the environment gives, with their texts."""
    for row in PROPERTIES:
        variable = environment_name(row.name)
        if not row.patterned and variable in environment:
            yield row.name, environment[variable]


def environment_name(name: str) -> str:
    """The environment variable that stands for a property."""
    return ENVIRONMENT_PREFIX + re.sub(r"[.-]", "_", name).upper()


def read_properties(path: Path) -> dict[str, str]:
    """Property texts of a file as they are written, placeholders included.

    Raises:
        ConfigurationError: the file is missing, of an unknown form or malformed.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ConfigurationError(
            "configuration file", str(path), "a file ending in " + ", ".join(_READERS), "rename it"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors of Windows begin a file with a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            "configuration file", str(path), "a readable UTF-8 file", f"check it: {error}"
        ) from error
    try:
        return reader(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error.what} in {path}", error.value, error.expected, error.hint) from error


def _read_json(text: str) -> dict[str, str]:
    try:
        return _flat(json.loads(text, object_pairs_hook=_without_repetition))
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

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        _without_repetition((key.value, None) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        return dict(super().construct_mapping(node, deep))


def _read_yaml(text: str) -> dict[str, str]:
    try:
        return _flat(yaml.load(text, _Texts))  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"look at line {mark.line + 1}, column {mark.column + 1}" if mark else "correct the file"
        problem = _QUOTED.sub("…", error.problem or "it")  # what it quotes may be a secret
        raise ConfigurationError("YAML", problem, "a valid document", place) from None
    except yaml.YAMLError:
        raise ConfigurationError("YAML", "an unreadable character", "a valid document", "correct the file") from None


def _without_repetition(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for name, value in pairs:
        if name in known:
            raise ConfigurationError("property", name, "each property once", "remove one of the two")
        known[name] = value
    return known


def _flat(document: object) -> dict[str, str]:
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
    return _without_repetition(_leaves("", document))


def _leaves(prefix: str, document: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    for key, value in document.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _leaves(f"{name}.", value)
        elif isinstance(value, list):
            yield name, _KINDS.get(name, kinds.REGEXES).joined([_text(name, entry) for entry in value])
        elif value is not None:
            yield name, _text(name, value)


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    form = type(value).__name__  # the value may hold a secret
    raise ConfigurationError(name, form, "a text, a number, true, false or a list of them", "put it in quotes")


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
    pending = ""
    for raw in lines:
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
        else:
            yield pending
            pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", replacement, text)


def _substitute(name: str, text: str, environment: Mapping[str, str]) -> str:
    def replacement(match: re.Match[str]) -> str:
        provider, argument = match.groups()
        if provider == "env":
            return _from_environment(name, argument, environment)
        if provider == "file":
            return _from_file(name, argument)
        raise ConfigurationError(name, match.group(0), "${env:NAME}, ${file:/path} or ${file:/path:key}", "correct it")

    return _PLACEHOLDER.sub(replacement, text)


def _from_environment(name: str, variable: str, environment: Mapping[str, str]) -> str:
    try:
        return environment[variable]
    except KeyError:
        raise ConfigurationError(
            name, f"${{env:{variable}}}", "a variable that is set", f"set the environment variable {variable}"
        ) from None


def _from_file(name: str, argument: str) -> str:
    path, _, key = argument.partition(":")
    try:
        content = Path(path).read_text(encoding="utf-8")
        return parse_java_properties(content)[key] if key else content.strip("\r\n")
    except (OSError, KeyError, UnicodeDecodeError):
        expected = f"a properties file with the key {key}" if key else "a readable file"
        raise ConfigurationError(name, f"${{file:{argument}}}", expected, f"check {path}") from None


_READERS = {".json": _read_json, ".properties": parse_java_properties, ".yaml": _read_yaml, ".yml": _read_yaml}
"""Reader by file name suffix."""
