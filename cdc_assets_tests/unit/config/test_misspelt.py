"""Variables of the environment that look like ours and are none."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_assets.config import misspelt
from cdc_assets.config.load import config_of, load_config, load_lake_config
from cdc_assets_tests.unit.config.minimum import MINIMUM


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(misspelt, "_named", set[str]())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CDC_DATABASE_HOST", "CDC_DATABASE_HOSTNAME"),
        ("CDC_TABLE_INCLUDE", "CDC_TABLE_INCLUDE_LIST"),
        ("CDC_SNAPSHOT_MOD", "CDC_SNAPSHOT_MODE"),
        ("CDC_SPARK_MASTR", "CDC_SPARK_MASTER"),
    ],
)
def test_a_misspelt_variable_is_named_once(caplog: pytest.LogCaptureFixture, name: str, meant: str) -> None:
    for _ in range(2):
        config_of(MINIMUM, {name: "x"})
    [line] = caplog.messages
    assert line == (
        f"The environment variable {name} has no effect: no property or variable of cdc-assets has this name. Next: did you mean {meant}?"
    )


@pytest.mark.parametrize("load", [load_config, load_lake_config])
def test_so_it_is_where_a_file_is_read(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, load: Callable[..., object]
) -> None:
    file = tmp_path / "capture.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in MINIMUM.items()))
    load(file, {"CDC_LAKE_PATHS": "x"})
    assert "CDC_LAKE_PATHS" in caplog.text


def test_others_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Those of other programs, those of which the configuration speaks, and those of which another capture's may."""
    names = (
        "CDC_DATABASE_PASSWRD",
        "CDC_DATABASE_PASSWORD_ERP",
        "CDC_DATABASE_PASSWORD2",
        "CDC_ERP_DATABASE_PASSWORD",
        "CDC_USER",
        "CDC_DB_PASSWORD",
    )
    own = ("CDC_CONFIG", "CDC_DATABASE_PORT", "DATABASE_HOSTNAM")
    with caplog.at_level(logging.WARNING):
        config_of({**MINIMUM, "database.password": "a${env:CDC_DATABASE_PASSWRD}"}, dict.fromkeys([*names, *own], "1"))
    assert not caplog.messages
