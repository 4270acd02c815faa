"""What nobody may see is nowhere after everything has run once: Dagster's storage, logs, commands, the lake, metrics.

Message keys hold the values of their columns as they are, whatever rules say, since they tell rows apart; so do a mirror's
columns of keys, what Delta and Parquet tell of these columns, and, in the manifest, the key that an incremental snapshot has
reached and the condition by which single rows are read again.
"""

import gzip
import json
import logging
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest
from dagster_graphql.test.utils import define_out_of_process_context, execute_dagster_graphql
from typer.testing import CliRunner

from cdc_assets.adapters.kafka import preflight, unread
from cdc_assets.cli.main import app
from cdc_assets.defs import kafka
from cdc_assets_tests.shop import ROOT, Shop, open_shop, tick
from mssql_standin import sample

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("spark_resource"),
    pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning"),
]

SECRETS = ("pl4nted-kafka", "pl4nted-registry", "pl4nted-salt", "pl4nted-wrong", "pl4nted-store")
KEYS = ("078-05-",)
VALUES = ("@pl4nted.example", "pl4nted-note", "pl4nted-default", "pl4nted-excluded", "pl4nted-former")
"""Beginnings or ends of values of the table's key, and of its other columns."""
PEOPLE = """
CREATE TABLE dbo.people (
    ssn varchar(20) NOT NULL DEFAULT '078-05-default', n int NOT NULL, email varchar(60) NULL DEFAULT 'pl4nted-default',
    note nvarchar(200) NOT NULL DEFAULT N'pl4nted-default', hidden varchar(60) NULL DEFAULT 'pl4nted-default', CONSTRAINT pk_people PRIMARY KEY (ssn, n)
)"""
RULES = {
    "column.mask.hash.v2.SHA-256.with.salt.pl4nted-salt": r"dbo\.people\.ssn",
    "column.mask.with.5.chars": r"dbo\.people\.email",
    "column.truncate.to.3.chars": r"dbo\.people\.note",
    "column.exclude.list": r"dbo\.people\.hidden",
}
KAFKA = {
    "kafka.enabled": "true",
    "bootstrap.servers": "127.0.0.1:1",
    "producer.security.protocol": "SASL_PLAINTEXT",
    "producer.sasl.jaas.config": 'p.PlainLoginModule required username="cdc" password="pl4nted-kafka";',
    "producer.sasl.mechanism": "PLAIN",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://127.0.0.1:1",
    "value.converter.basic.auth.user.info": "cdc:pl4nted-registry",
}

PAGES = """
fragment facts on MetadataEntry { label description
  ... on TextMetadataEntry { text } ... on MarkdownMetadataEntry { mdStr } ... on JsonMetadataEntry { jsonString }
  ... on PathMetadataEntry { path } ... on UrlMetadataEntry { url } ... on TableMetadataEntry { table { records } } }
{ repositoriesOrError { ... on RepositoryConnection { nodes {
    allTopLevelResourceDetails { name description configuredValues { key value } configFields { description defaultValueAsJson } }
    pipelines { name description tags { key value } runs { runConfigYaml tags { key value } } }
    sensors { name description } } } }
  assetNodes { assetKey { path } description metadataEntries { ...facts }
    assetMaterializations { metadataEntries { ...facts } tags { key value } }
    assetObservations { description metadataEntries { ...facts } }
    assetChecksOrError { ... on AssetChecks { checks { description
      executionForLatestMaterialization { evaluation { description metadataEntries { ...facts } } } } } } }
  runsOrError { ... on Runs { results { runId eventConnection(limit: 1000) { events { ... on MessageEvent { message } } } } } } }
"""
"""Of all resources, jobs, assets with their events and checks, and the logs of runs."""


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a broker that is not there."""
    monkeypatch.setattr(kafka, "_SILENT_S", 0.5)
    monkeypatch.setattr(unread, "_REQUEST_TIMEOUT_S", 1.0)
    monkeypatch.setattr(preflight, "_LIMIT_S", 1.0)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as shop:
        yield shop


def row(number: int) -> str:
    texts = (f"a{number}@pl4nted.example", f"xx pl4nted-note {number}", f"pl4nted-excluded {number}")
    return f"('078-05-{number}', {number}, {', '.join(repr(text) for text in texts)})"


def behind_the_log(shop: Shop, statement: str) -> None:
    """Change rows without the triggers that record it, as a partition that is switched out or in does."""
    with closing(shop.server.engine.storage.connect()) as store:
        found = store.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in found:
            store.execute(f'DROP TRIGGER "{name}"')
        shop.execute(statement)
        for _, text in found:
            store.execute(text)


def run_everything(shop: Shop, instance: dg.DagsterInstance, told: list[str]) -> None:
    """Snapshot, changes, incremental snapshot by signals, comparison, refused publishing, password and configuration."""
    signals = f"{sample.DATABASE}.dbo.{sample.SIGNAL_TABLE}"
    right = RULES | {
        "signal.data.collection": signals,
        "mirror.enabled": "true",
        "mirror.reconcile.settle.ms": "300",
        "incremental.snapshot.chunk.size": "2",
        "notification.enabled.channels": "sink,log",
        "notification.sink.topic.name": "notes",
        "metrics.textfile": str(shop.folder / "shop.prom"),
        "errors.max.retries": "0",
    }
    shop.write(right | KAFKA)
    shop.execute(PEOPLE)
    shop.execute(f"INSERT INTO dbo.people VALUES {', '.join(map(row, range(10, 20)))}")
    shop.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'people', @role_name = NULL")
    assert shop.snapshot(instance).success
    shop.execute("UPDATE dbo.people SET email = 'new' + email, note = note + 'pl4nted-note', hidden = hidden + '!'")
    shop.execute("DELETE FROM dbo.people WHERE n = 19")
    data = json.dumps({"data-collections": [f"{sample.DATABASE}.dbo.people"]})
    shop.execute(f"INSERT INTO dbo.{sample.SIGNAL_TABLE} VALUES ('s1', 'execute-snapshot', '{data}')")
    for _ in range(2):
        assert shop.changes(instance).success
    assert "IN_PROGRESS" in str(shop.rows("notes"))
    shop.write(right)
    behind_the_log(shop, "DELETE FROM dbo.people WHERE n = 11")
    behind_the_log(shop, f"INSERT INTO dbo.people VALUES {row(31)}")
    compared = shop.run("shop_reconcile", instance, run_config={"ops": {"shop_compare": {"config": {"repair": True}}}})
    assert [check.metadata["differing"].value for check in compared.get_asset_check_evaluations() if not check.passed]
    assert shop.changes(instance).success
    told.append(str(tick(shop, instance)))
    wrong = {"database.password": "pl4nted-wrong", "lake.storage.option.TOKEN": "pl4nted-store"}
    shop.write(right | wrong)
    assert not shop.changes(instance).success
    for refused in (
        KAFKA | {"value.converter.password": "pl4nted-registry"},
        {"column.mask.hash.SHA-999.with.salt.pl4nted-salt": "dbo.people.ssn"},
        {"database.port": "http://cdc:pl4nted-wrong@db"},
    ):
        shop.write(right | wrong | refused)
        page = shop.definitions().resolve_asset_graph().get(dg.AssetKey(["shop", "windows"]))
        assert "The configuration is broken" in (page.description or "")
        told.append(str(page.description))
        assert CliRunner().invoke(app, ["status", "-c", str(shop.file)], env=shop.environment).exit_code
    shop.write(right | KAFKA | wrong | {"database.password": "${env:CDC_SHOP_PASSWORD}"})


def pages(shop: Shop, instance: dg.DagsterInstance) -> str:
    """What the web server answers to its pages."""
    place = str(ROOT / "resources" / "definitions.py")
    with shop.in_environment(), define_out_of_process_context(place, "defs", instance) as context:
        answer = execute_dagster_graphql(context, PAGES)
    assert not answer.errors
    return json.dumps(answer.data)


def stored(home: Path) -> Iterator[tuple[str, str]]:
    """All texts below Dagster's home: rows of its databases, unpacked, and files, such as logs of runs."""
    for path in sorted(path for path in home.rglob("*") if path.is_file()):
        if path.suffix != ".db":
            yield path.name, path.read_bytes().decode(errors="replace")
            continue
        with closing(sqlite3.connect(path)) as database:
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                for found in database.execute(f'SELECT * FROM "{table}"'):
                    yield f"{path.name} {table}", " ".join(map(text_of, found))


def text_of(value: object) -> str:
    if not isinstance(value, bytes):
        return str(value)
    for unpack in (zlib.decompress, gzip.decompress):
        try:
            return unpack(value).decode()
        except (OSError, zlib.error):
            continue
    return value.decode(errors="replace")


def of_key(name: str) -> bool:
    """Whether a column, or an entry of the manifest, may hold values of a key as they are."""
    return name.split(".")[0] == "key" or name.startswith("_key_") or name in ("maximum", "last", "condition")


def of_files(path: Path) -> Iterator[tuple[str, str]]:
    """Values and statistics of a Parquet file by column."""
    table = pq.read_table(path)
    while any(str(field.type).startswith("struct") for field in table.schema):
        table = table.flatten()
    for name in table.column_names:
        yield name, str(without_keys(table[name].to_pylist()))
    about = pq.read_metadata(path)
    for group in range(about.num_row_groups):
        for number in range(about.num_columns):
            column = about.row_group(group).column(number)
            if column.statistics is not None and column.statistics.has_min_max:
                bounds = [column.statistics.min, column.statistics.max]
                yield column.path_in_schema, str(without_keys(bounds))
    yield "schema", str(table.schema.metadata) + str(about.metadata)


def without_keys(value: Any) -> Any:
    """A record of the lake without what tells of columns of keys."""
    if isinstance(value, str) and value.startswith(("{", "[")):
        with suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, dict):
        return {name: without_keys(one) for name, one in value.items() if not of_key(name)}
    return list(map(without_keys, value)) if isinstance(value, list) else value


def lake(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        place = str(path.relative_to(folder))
        if path.suffix == ".parquet":
            for name, text in of_files(path):
                if not of_key(name):
                    yield f"{place}: {name}", text
        elif "_delta_log" in place and path.suffix == ".json":
            for line in path.read_text().splitlines():
                yield place, str(without_keys(json.loads(line)))
        else:
            yield place, path.read_bytes().decode(errors="replace")


@pytest.mark.long
def test_what_nobody_may_see_is_nowhere(
    shop: Shop, soon: None, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    home, told = tmp_path / "home", []
    home.mkdir()
    with caplog.at_level(logging.INFO), dg.DagsterInstance.local_temp(str(home)) as instance:
        run_everything(shop, instance, told)
        told.append(pages(shop, instance))
        for command in (["status"], ["status", "--json"], ["doctor"], ["properties"], ["tail", "--help"]):
            told.append(CliRunner().invoke(app, [*command, "-c", str(shop.file)], env=shop.environment).output)
    every = SECRETS + KEYS + VALUES + (shop.server.password,)
    out = capfd.readouterr()
    seen = [("told", text) for text in told] + [("log", caplog.text), ("output", out.out + out.err)]
    seen += [*stored(home), *stored(tmp_path / "state"), ("metrics", (tmp_path / "shop.prom").read_text())]
    rounds = {place for place, text in seen if "IN_PROGRESS" in text}
    assert {"told", "log"} < rounds
    assert any("event_logs" in place for place in rounds)
    assert {(place, secret) for place, text in seen for secret in every if secret in text} == set()
    kept = list(lake(tmp_path / "lake"))
    assert any("shop.__reconciled" in place for place, _ in kept)
    assert {(place, secret) for place, text in kept for secret in every if secret in text} == set()
