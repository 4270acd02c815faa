"""Whatever a configuration holds, it is read or it is one clear error: no traceback, no wait, no memory without end.

`CDC_LAW_EXAMPLES` sets how many configurations of each kind are tried.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cdc_assets.cli.main import app
from cdc_assets.config.engine import is_engine_file, load_engine_config
from cdc_assets.config.load import load_config
from cdc_assets.config.properties import PROPERTIES
from cdc_assets.config.property import Property, Status
from cdc_assets.errors import ConfigurationError
from cdc_assets_tests.unit.config.minimum import MINIMUM

EXAMPLES = int(os.environ.get("CDC_LAW_EXAMPLES", "30"))
SUFFIXES = (".json", ".properties", ".yaml", ".yml")
LONGEST_MESSAGE = 4_000

LARGE = [str(number) for power in (31, 32, 53, 63, 64, 128) for number in (2**power - 1, 2**power, -(2**power))]
ODD = [
    *LARGE,
    "9" * 5_000,
    "1e400",
    "nan",
    "inf",
    "",
    " ",
    "\0",
    "\ud800",
    "١٢",
    "1_000",
    "x" * 70_000,
    "a..b",
    "[::1]",
    "\\",
]
SYNTAX = st.sampled_from('{}[]:,"\\\n \t-&*!|>%@`#?<~=${}e0ud800')
TEXTS = st.one_of(st.sampled_from(ODD), st.text(max_size=40), st.integers().map(str), st.text(SYNTAX, max_size=40))
NAMES = st.one_of(st.sampled_from([row.name for row in PROPERTIES]), st.text(max_size=20))
LEAVES = st.one_of(TEXTS, st.integers(), st.floats(), st.booleans(), st.none())
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)

tried = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def load(path: Path) -> bool:
    """Whether it is a configuration; if not, the error can be printed and read."""
    told = ""
    try:
        (load_engine_config if is_engine_file(path) else load_config)(path)
    except ConfigurationError as error:
        told = str(error)
    assert len(told.encode()) <= LONGEST_MESSAGE
    return not told


def command(path: Path) -> None:
    """The command that shows and checks it agrees."""
    wanted = 0 if load(path) else 2
    result = CliRunner().invoke(app, ["properties", "--config", str(path)], env={"COLUMNS": "220"})
    assert result.exit_code == wanted, result.output


def write(folder: Path, suffix: str, content: bytes) -> Path:
    path = folder / f"fuzz{suffix}"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
@tried
@given(content=st.one_of(st.binary(max_size=200), st.text(SYNTAX, max_size=200).map(str.encode)))
def test_bytes(tmp_path: Path, suffix: str, content: bytes) -> None:
    command(write(tmp_path, suffix, content))


def _properties(document: Any) -> str:
    pairs = document if isinstance(document, dict) else {"x": document}
    return "\n".join(f"{name}={text}" for name, text in pairs.items())


WRITERS: dict[str, Callable[[Any], str]] = {".json": json.dumps, ".yaml": yaml.safe_dump, ".properties": _properties}


@pytest.mark.long
@pytest.mark.parametrize("suffix", WRITERS)
@tried
@example(document=MINIMUM | {"name": "", "connector.class": "2147483647"})
@given(document=st.one_of(DOCUMENTS, st.dictionaries(NAMES, DOCUMENTS, max_size=5).map(lambda more: MINIMUM | more)))
def test_documents(tmp_path: Path, suffix: str, document: Any) -> None:
    command(write(tmp_path, suffix, WRITERS[suffix](document).encode(errors="replace")))


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.name)
@settings(tried, max_examples=max(1, EXAMPLES // 10))
@given(text=TEXTS, hole=st.one_of(st.sampled_from(["5", "9" * 5_000, "MD5", "dbo.t"]), st.text(min_size=1, max_size=9)))
def test_values(tmp_path: Path, row: Property, text: str, hole: str) -> None:
    name = row.name
    for part in ("<algorithm>", "<salt>", "<length>", "<table>", "<option>"):
        name = name.replace(part, hole)
    load(write(tmp_path, ".json", json.dumps(MINIMUM | {name: text}).encode()))


def refusal(path: Path) -> str:
    """What the command line says to a wrong configuration."""
    result = CliRunner().invoke(app, ["doctor", "-c", str(path)], env={"COLUMNS": "220"})
    assert result.exit_code == 2, result.output
    assert len(result.output) < LONGEST_MESSAGE
    return result.output


DEEP = 100_000


def growing(first: str, step: str) -> str:
    """A YAML document of ten lines, each of which holds ten times the line before."""
    lines = [f"a{line}: &a{line} " + step.format(",".join([f"*a{line - 1}"] * 10)) for line in range(1, 10)]
    return "\n".join([f"a0: &a0 {first}", *lines])


@pytest.mark.parametrize(
    ("suffix", "text", "needle"),
    [
        pytest.param(".json", '{"a":' * DEEP + "1" + "}" * DEEP, "deep", id="objects"),
        pytest.param(".json", '{"a":' + "[" * DEEP + "]" * DEEP + "}", "deep", id="lists"),
        pytest.param(".json", '{"a":' * 500 + "1" + "}" * 500, "deep", id="objects that the parser takes"),
        pytest.param(".yaml", "a: " + "[" * 5_000, "deep", id="yaml lists"),
        pytest.param(".yaml", "{a: " * 500 + "1" + "}" * 500, "deep", id="yaml mappings"),
        pytest.param(".yaml", growing("[x,y,z]", "[{}]"), "alias", id="lists of aliases"),
        pytest.param(".yaml", growing("{x: 1}", "{{<<: [{}]}}"), "alias", id="merged aliases"),
        pytest.param(".yaml", "a: &a " + "x" * 9_999 + f"\nb: [{'*a,' * 999}]", "alias", id="aliases of a text"),
        pytest.param(".yaml", "a: &a {b: *a}", "itself", id="mapping in itself"),
        pytest.param(".yaml", "a: &a [*a]", "itself", id="list in itself"),
        pytest.param(".yaml", 'a: "\\UFFFFFFFF"', "YAML", id="no character"),
        pytest.param(".yaml", "a: !!int x", "YAML", id="no number"),
        pytest.param(".json", f'{{"{"x" * 99_999}": 1}}', "characters", id="long name"),
        pytest.param(".properties", "x=" + "y" * 5_000_000, "bytes", id="long file"),
    ],
)
def test_document_that_is_too_much(tmp_path: Path, suffix: str, text: str, needle: str) -> None:
    assert needle in refusal(write(tmp_path, suffix, text.encode()))


@pytest.mark.parametrize(
    ("name", "value", "needle"),
    [
        pytest.param("database.port", "1" * 5_000, "65535", id="5,000 digits"),
        pytest.param("database.port", "1e999", "65535", id="infinity"),
        pytest.param("database.hostname", '"\\ud800"', "surrogate", id="half a character"),
        pytest.param("lake.path", '"a\\u0000b"', "NUL", id="NUL"),
        pytest.param("signal.file", '"${file:a\\u0000b}"', "a readable file", id="file with NUL"),
        pytest.param("signal.file", '"${file:/dev/zero}"', "at most 1,048,576 bytes", id="file without end"),
        pytest.param("database.hostname", f'"{"a" * 64}"', "63", id="long label"),
        pytest.param("database.hostname", '"a..b"', "63", id="empty label"),
        pytest.param("odbc.driver", f'"{"x" * 3_000}"', "500", id="long driver"),
        pytest.param("column.mask.with.99999999999.chars", '"a"', "10000000", id="long mask"),
        pytest.param(f"column.mask.with.{'9' * 900}.chars", '"a"', "10000000", id="long length"),
        *(
            pytest.param(row.name, str(2**31), "20000" if row.name == "sensor.wait.ms" else "2147483647", id=row.name)
            for row in PROPERTIES
            if row.name.endswith(".ms") and row.status is Status.SUPPORTED
        ),
    ],
)
def test_value_that_is_too_much(tmp_path: Path, name: str, value: str, needle: str) -> None:
    rest = {known: text for known, text in MINIMUM.items() if known != name}
    document = json.dumps(rest)[:-1] + f', "{name}": {value}}}'
    text = refusal(write(tmp_path, ".json", document.encode()))
    assert needle in text
    assert re.sub(r"\d{4,}", "", name) in re.sub(r"\d{4,}|<length>", "", text)


def test_a_pair_of_escapes_is_one_character(tmp_path: Path) -> None:
    texts = MINIMUM | {"database.password": "\\ud83d\\ude00"}
    path = write(tmp_path, ".properties", _properties(texts).encode())
    assert load_config(path, {}).connection.password == "\U0001f600"
