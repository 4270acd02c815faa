"""Which Spark is chosen: environment before what is given before the file; local by default."""

import socket
from pathlib import Path

import pytest

from cdc_assets.adapters.spark.address import driver_address, endpoints
from cdc_assets.adapters.spark.session import LazySession
from cdc_assets.adapters.spark.settings import LOCAL, SparkSettings, spark_settings
from cdc_assets.errors import ConfigurationError

FILE = """
# as spark-defaults.conf
spark.master                 spark://file:7077
spark.executor.memory=2g
spark.cdc.tasks              6
spark.cdc.executor.timeout   2m
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "spark.conf"
    path.write_text(FILE)
    return path


def test_local_unless_something_is_said(tmp_path: Path) -> None:
    settings = spark_settings(file=tmp_path / "missing.conf", environment={})
    assert (settings.master, settings.remote, settings.local) == (LOCAL, "", True)


def test_environment_comes_before_what_is_given_and_that_before_the_file(file: Path) -> None:
    settings = spark_settings(file=file, environment={})
    assert (settings.master, settings.tasks, settings.executor_timeout_s) == ("spark://file:7077", 6, 120)
    assert settings.config == {"spark.executor.memory": "2g"}
    given = spark_settings("spark://given", config={"spark.executor.memory": "4g"}, file=file, environment={})
    assert (given.master, given.config["spark.executor.memory"]) == ("spark://given", "4g")
    told = spark_settings("spark://given", file=file, environment={"CDC_SPARK_MASTER": "local[3]"})
    assert (told.master, told.local) == ("local[3]", True)
    remote = spark_settings("spark://given", file=file, environment={"CDC_SPARK_REMOTE": "sc://told"})
    assert (remote.remote, remote.local) == ("sc://told", False)


def test_file_is_that_of_the_environment_or_sparks_own(file: Path, tmp_path: Path) -> None:
    assert spark_settings(environment={"CDC_SPARK_CONF": str(file)}).master == "spark://file:7077"
    file.rename(tmp_path / "spark-defaults.conf")
    assert spark_settings(environment={"SPARK_CONF_DIR": str(tmp_path)}).master == "spark://file:7077"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("master local", "begins with spark"),
        ("spark.cdc.tasks many", "whole number"),
        ("spark.cdc.executor.timeout soon", "90s or 5m"),
        ("spark.remote host:15002", "sc://host:15002"),
    ],
)
def test_what_makes_no_sense_is_refused(file: Path, text: str, told: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=told):
        spark_settings(file=file, environment={})


def test_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="CDC_SPARK_CONF"):
        spark_settings(environment={"CDC_SPARK_CONF": str(tmp_path / "missing.conf")})


def test_token_of_a_connect_address_is_not_shown() -> None:
    settings = SparkSettings(remote="sc://host:443/;token=secret;use_ssl=true")
    assert settings.address == "sc://host:443/"
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    "remote",
    [
        "sc://host:443/;token=secret==",
        "sc://host:443/;token=sec/secret;use_ssl=true",
        "sc://host:443/;token=secret;",
        "sc://host:443;token=secret",
        "sc://host:443/token=secret",
        "sc://user:secret@host:443/",
        "host:443/;token=secret",
    ],
)
def test_connect_address_that_pyspark_would_refuse_and_show_is_refused_without_its_token(remote: str) -> None:
    with pytest.raises(ConfigurationError, match="%3D") as error:
        spark_settings(remote=remote, environment={})
    assert "host:443" in str(error.value)
    assert "secret" not in f"{error.value} {error.value.value}"


def test_connect_addresses_with_and_without_parameters_are_taken() -> None:
    for remote in ("sc://host", "sc://a-b.c:1/", "sc://[::1]:15002/;use_ssl=true;x-id=7;token=abc%3D%3D"):
        assert spark_settings(remote=remote, environment={}).remote == remote


@pytest.mark.parametrize(
    ("master", "slots", "local"),
    [("local", 1, True), ("local[3]", 3, True), ("local[2,4]", 2, True), ("local-cluster[2, 3,1024]", 6, False), ("yarn", 0, False)],
)  # fmt: skip
def test_tasks_at_once_are_known_without_a_session_where_the_master_tells(master: str, slots: int, local: bool) -> None:
    settings = SparkSettings(master)
    assert (settings.slots(), settings.local) == (slots, local)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("spark://one:7078,two", [("one", 7078), ("two", 7077)]),
        ("k8s://https://api.example.org:6443", [("api.example.org", 6443)]),
        ("sc://[::1]/;token=x:1", [("::1", 15002)]),
        ("yarn", []),
        ("local[*]", []),
    ],
)
def test_hosts_of_an_address(address: str, found: list[tuple[str, int]]) -> None:
    assert endpoints(address) == found


def test_driver_is_where_it_reaches_the_master_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert driver_address(f"spark://127.0.0.1:{port}") == "127.0.0.1"
    with pytest.raises(ConfigurationError, match="answers"):
        driver_address(f"spark://127.0.0.1:{port}")
    assert driver_address(f"k8s://https://127.0.0.1:{port}") == ""
    assert driver_address("yarn") == ""


def test_loopback_is_for_local_sessions_alone() -> None:
    assert LazySession(SparkSettings("local[2]")).properties()["spark.driver.bindAddress"] == "127.0.0.1"
    cluster = LazySession(SparkSettings("yarn", config={"spark.driver.host": "10.0.0.1"})).properties()
    assert cluster["spark.driver.host"] == "10.0.0.1"
    assert "spark.driver.bindAddress" not in cluster


@pytest.mark.parametrize("master", ["local[2]", "spark://head:7077"])
def test_no_session_of_ours_speculates(master: str) -> None:
    settings = SparkSettings(master, config={"spark.speculation": "true"})
    assert LazySession(settings).properties()["spark.speculation"] == "false"
