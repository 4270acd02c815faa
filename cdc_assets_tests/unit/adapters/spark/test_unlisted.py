"""Secrets among Spark's properties are no arguments of its JVM."""

import os
import shlex
import tempfile
from pathlib import Path

import pytest

from cdc_assets.adapters.spark import jvm
from cdc_assets.adapters.spark.unlisted import java_properties, secrets_unlisted
from cdc_assets.config.formats import parse_java_properties

ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
SECRETS = {
    "spark.hadoop.fs.s3a.secret.key": " pl4nted = \\key:#! \té\n\U0001f600",
    "spark.executorEnv.AWS_SESSION_TOKEN": "pl4nted",
}
PLAIN = {"spark.sql.shuffle.partitions": "4", "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:1"}


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ARGUMENTS, raising=False)
    monkeypatch.setattr(jvm, "is_started", lambda: False)


@pytest.mark.parametrize("before", [None, "--jars a.jar pyspark-shell"])
def test_a_jvm_that_is_started_finds_them_in_a_file_that_nobody_else_may_read(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is not None:
        monkeypatch.setenv(ARGUMENTS, before)
    with secrets_unlisted(SECRETS | PLAIN) as listed:
        option, place, *rest = shlex.split(os.environ[ARGUMENTS])
        assert listed == PLAIN
        assert (option, rest[0], shlex.join(rest[1:])) == (
            "--properties-file", "--load-spark-defaults", before or "pyspark-shell",
        )  # fmt: skip
        assert (Path(place).stat().st_mode & 0o777, Path(place).parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert parse_java_properties(Path(place).read_text()) == SECRETS
    assert os.environ.get(ARGUMENTS) == before
    assert not Path(place).parent.exists()


def test_what_a_killed_process_has_left_is_removed_once_no_jvm_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, new, other = (tmp_path / name for name in ("cdc-spark-old", "cdc-spark-new", "another"))
    for folder in (old, new, other):
        folder.mkdir()
        (folder / "spark.properties").write_text("spark.secret=pl4nted")
    for folder in (old, other):
        os.utime(folder, (0, 0))
    with secrets_unlisted(SECRETS):
        assert [folder.exists() for folder in (old, new, other)] == [False, True, True]


def test_nothing_is_changed_where_there_is_no_secret_or_spark_would_not_read_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with secrets_unlisted(PLAIN) as listed:
        assert (listed, os.environ.get(ARGUMENTS)) == (PLAIN, None)
    monkeypatch.setenv(ARGUMENTS, "--properties-file /etc/mine pyspark-shell")
    with secrets_unlisted(SECRETS) as listed:
        assert (listed, os.environ[ARGUMENTS]) == (SECRETS, "--properties-file /etc/mine pyspark-shell")
    monkeypatch.delenv(ARGUMENTS)
    monkeypatch.setattr(jvm, "is_started", lambda: True)
    with secrets_unlisted(SECRETS) as listed:
        assert (listed, os.environ.get(ARGUMENTS)) == (SECRETS, None)


def test_the_form_is_that_of_java() -> None:
    assert java_properties({"a b": "c=d", "é": "\U0001f600"}) == "a\\ b=c\\=d\n\\u00e9=\\ud83d\\ude00\n"
