"""Configuration files: JSON (plain or as Kafka Connect takes it), Java properties, YAML, also a component's `defs.yaml`.

Values may hold `${env:NAME}`, `${file:/path}` (the whole file) and `${file:/path:key}` (a key of a properties file), so
that secrets stay outside. After that, an environment variable `CDC_` + the property name in capitals with `_` for each
`.` and `-` replaces a value or adds it: `CDC_DATABASE_HOSTNAME` is `database.hostname`. Only exact property
names can be given so, not patterned ones.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cdc_assets.config.build import build_config, canonical_name
from cdc_assets.config.formats import COMPONENT_FILE, MAX_BYTES, READERS, flat, parse, parse_java_properties
from cdc_assets.config.masks import Masks
from cdc_assets.config.misspelt import PREFIX, warn_of_misspelt
from cdc_assets.config.properties import PROPERTIES
from cdc_assets.config.property import shown_name
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import ConfigurationError

_OF_CONNECTIONS = ("database.", "driver.", "odbc.", "signal.kafka.", "signal.consumer.", "producer.")
"""Name prefixes of properties that are not needed to read the lake."""
_REQUIRED = frozenset(row.name for row in PROPERTIES if row.required)
_UNRESOLVED = "unresolved"
CONFIGURATION_VARIABLE = "CDC_CONFIG"
"""Environment variable with the path of a configuration file, or of a folder with one file per capture."""
_PLACEHOLDER = re.compile(r"\$\{(\w+):([^}]*)\}")


def load_config(path: str | Path, environment: Mapping[str, str] | None = None) -> CaptureConfig:
    """Read a file, replace placeholders, apply overrides, validate.

    Args:
        path: a `.json`, `.properties`, `.yaml` or `.yml` file.
        environment: variables for placeholders and overrides; the process's own if None.

    Raises:
        ConfigurationError: the file cannot be read, or its content is not valid.
    """
    variables = os.environ if environment is None else environment
    given = read_properties(Path(path))
    _warn_of_misspelt(given, variables)
    texts = {name: substitute(name, text, variables) for name, text in given.items()}
    return build_config(_overridden(texts, variables))


def load_lake_config(
    path: str | Path, environment: Mapping[str, str] | None = None, needed: str = ""
) -> tuple[CaptureConfig, ConfigurationError | None]:
    """As `load_config`, for code that only reads the lake: secrets of the server and of Kafka may be missing.

    Args:
        path: see `load_config`.
        environment: see `load_config`.
        needed: beginning of the names of properties whose secrets may not be missing; empty if there are none.

    Returns:
        The settings, and the error of the first placeholder that could not be replaced, if any; with an error the
        settings cannot be used to connect.

    Raises:
        ConfigurationError: the file cannot be read, or its content is not valid otherwise.
    """
    variables = os.environ if environment is None else environment
    overridden = dict(overrides(variables))
    texts: dict[str, str] = {}
    unresolved: ConfigurationError | None = None
    given = read_properties(Path(path))
    _warn_of_misspelt(given, variables)
    for name, text in given.items():
        try:
            texts[name] = substitute(name, text, variables)
        except ConfigurationError as error:
            if not name.startswith(_OF_CONNECTIONS) or (needed and name.startswith(needed)):
                raise
            if name not in overridden:
                unresolved = unresolved or error
            if name in _REQUIRED:
                texts[name] = _UNRESOLVED
    return build_config(_overridden(texts, variables)), unresolved


def given_properties(path: Path, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Property texts of a file and of the environment, with placeholders as they are written.

    Raises:
        ConfigurationError: the file is missing, of an unknown form or malformed.
    """
    variables = os.environ if environment is None else environment
    return _overridden(read_properties(path), variables)


def config_of(properties: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> CaptureConfig:
    """Settings from properties given in Python or YAML, as `load_config` makes them from a file.

    Args:
        properties: values by dotted name or nested: texts, numbers, booleans and lists of them, with placeholders
            allowed.
        environment: variables for placeholders and overrides; the process's own if None.

    Raises:
        ConfigurationError: a property is not valid.

    Example:
        >>> config_of({"topic.prefix": "erp", "database.hostname": "db", "database.names": ["Erp"], "lake.path": "lake"})
    """
    variables = os.environ if environment is None else environment
    given = flat(dict(properties))
    _warn_of_misspelt(given, variables)
    texts = {name: substitute(name, text, variables) for name, text in given.items()}
    return build_config(_overridden(texts, variables))


def literal_secrets(properties: Mapping[str, Any]) -> list[str]:
    """Names of properties of a capture of any kind whose secret is written out instead of being referenced by
    `${env:…}` or `${file:…}`. A salt is part of its property's name, so it always is."""
    texts = flat(dict(properties))
    masks = Masks(texts)
    return [
        name
        for name, text in texts.items()
        if masks.hides(name) and (shown_name(name) != name or not _PLACEHOLDER.search(text))
    ]


def configuration_files(place: Path) -> list[Path]:
    """The configuration file, or all of a folder with one file per capture, sorted by name.

    Raises:
        ConfigurationError: the path does not exist or holds no configuration file.
    """
    files = [place] if place.is_file() else sorted(path for path in place.glob("*") if path.suffix.lower() in READERS)
    if not files:
        raise ConfigurationError(
            "configuration",
            str(place),
            "a file, or a folder with files, ending in " + ", ".join(READERS),
            "name it with --config or CDC_CONFIG, or run from the project's folder",
        )
    return files


def refers_to_file(path: Path, names: Sequence[str], environment: Mapping[str, str] | None = None) -> bool:
    """Whether one of some properties is read from a file that the configuration references, and so may change during a
    run.

    Raises:
        ConfigurationError: the configuration cannot be read.
    """
    variables = os.environ if environment is None else environment
    texts = read_properties(path)
    return any("${file:" in texts.get(name, "") and environment_name(name) not in variables for name in names)


def configured_files(default: Path) -> list[Path]:
    """The configuration files of all captures, from `CDC_CONFIG` (a file or a folder) or `default`.

    Raises:
        ConfigurationError: the path does not exist or holds no configuration file.
    """
    return configuration_files(Path(os.environ.get(CONFIGURATION_VARIABLE) or default))


def overrides(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Properties set by environment variables, with their texts."""
    for row in PROPERTIES:
        variable = environment_name(row.name)
        if not row.patterned and variable in environment:
            yield row.name, environment[variable]


def _overridden(texts: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Property texts, with those of the environment in place of what a file has under this name or an older one."""
    own = dict(overrides(environment))
    return {name: text for name, text in texts.items() if canonical_name(name) not in own} | own


def _warn_of_misspelt(given: Mapping[str, str], environment: Mapping[str, str]) -> None:
    names = {environment_name(row.name) for row in PROPERTIES if not row.patterned}
    warn_of_misspelt(environment, names, given.values())


def environment_name(name: str) -> str:
    """The environment variable of a property."""
    return PREFIX + re.sub(r"[.-]", "_", name).upper()


def read_properties(path: Path) -> dict[str, str]:
    """Property texts of a file, or of the one that a component's `defs.yaml` names; with placeholders not replaced.

    Raises:
        ConfigurationError: the file is missing, of an unknown form or malformed.
    """
    texts = _read_texts(path)
    return texts if (other := texts.get(COMPONENT_FILE)) is None else _read_texts(path.parent / other)


def _read_texts(path: Path) -> dict[str, str]:
    if path.suffix.lower() not in READERS:
        raise ConfigurationError("configuration file", str(path), "a file ending in " + ", ".join(READERS), "rename it")
    try:
        text = _read(path).decode("utf-8-sig")  # Windows editors write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            "configuration file", str(path), "a readable UTF-8 file", f"check it: {error}"
        ) from error
    try:
        return parse(path.suffix.lower(), text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error.what} in {path}", error.value, error.expected, error.hint) from error


def _read(path: Path) -> bytes:
    """The content of a referenced file; limited, because it may be an endless device."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ConfigurationError("file", str(path), f"at most {MAX_BYTES:,} bytes", "name another file, or shorten it")
    return content


def substitute(name: str, text: str, environment: Mapping[str, str]) -> str:
    """A property's text with its placeholders replaced.

    Raises:
        ConfigurationError: one of them refers to nothing.
    """

    def replacement(match: re.Match[str]) -> str:
        provider, argument = match.groups()
        if provider == "env":
            return _from_environment(name, argument, environment)
        if provider == "file":
            return _from_file(name, argument)
        shown = "${…}"  # what is no placeholder may be a part of a secret
        raise ConfigurationError(name, shown, "${env:NAME}, ${file:/path} or ${file:/path:key}", "correct it")

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
        content = _read(Path(path)).decode()
        return parse_java_properties(content)[key] if key else content.strip("\r\n")
    except ConfigurationError as error:
        raise ConfigurationError(name, f"${{file:{argument}}}", error.expected, error.hint) from None
    except (OSError, KeyError, ValueError):  # a NUL in the name, or content that is not UTF-8
        expected = f"a properties file with the key {key}" if key else "a readable file"
        raise ConfigurationError(name, f"${{file:{argument}}}", expected, f"check {path}") from None
