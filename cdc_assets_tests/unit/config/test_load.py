"""Files become settings; whatever is wrong is one clear error."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.config.build import build_config
from cdc_assets.config.filters import TableFilter
from cdc_assets.config.formats import parse_java_properties
from cdc_assets.config.load import config_of, environment_name, load_config
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.signal import signal_table
from cdc_assets.errors import ConfigurationError
from cdc_assets_tests.unit.config.minimum import MINIMUM


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_plain_json(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "a.json", json.dumps({**MINIMUM, "database.port": 1444})), {})
    assert config.connection.databases == ("Sales", "Stock")
    assert config.connection.port == 1444
    assert config.name == config.events.topic_prefix == "shop"
    assert config.connection.encrypt == "yes"


def test_what_is_late_and_how_decimals_are_written() -> None:
    config = build_config(
        {
            **MINIMUM,
            "mirror.late.ms": "1500",
            "kafka.late.ms": "2500",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.decimal.format": "NUMERIC",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.decimal.format": "numeric",
        }
    )
    assert (config.mirror.late_s, config.kafka.late_s) == (1.5, 2.5)
    assert (config.text.key_decimals, config.text.value_decimals) == ("NUMERIC", "NUMERIC")


def test_kafka_connect_json_names_the_capture(tmp_path: Path) -> None:
    document = {"name": "orders", "config": {**MINIMUM, "tasks.max": "1", "tombstones.on.delete": False}}
    config = load_config(write(tmp_path, "a.json", json.dumps(document)), {})
    assert config.name == "orders"
    assert config.events.tombstones_on_delete is False
    assert [name for name, _ in config.ignored] == ["tasks.max"]


def test_properties_file(tmp_path: Path) -> None:
    lines = [f"{name}={text}" for name, text in MINIMUM.items()] + ["table.include.list = dbo\\\\.a,\\", "   dbo\\\\.b"]
    config = load_config(write(tmp_path, "a.properties", "# comment\n" + "\n".join(lines)), {})
    assert config.filters.table_include == (r"dbo\.a", r"dbo\.b")


def test_yaml_nested_and_lists(tmp_path: Path) -> None:
    text = """
database: {hostname: db, user: reader, password: x, names: [Sales]}
topic.prefix: shop
table.include.list:
  - dbo\\.orders
  - dbo\\.a{1,2}
"""
    config = load_config(write(tmp_path, "a.yaml", text), {})
    assert config.connection.databases == ("Sales",)
    assert config.filters.table_include == (r"dbo\.orders", "dbo\\.a{1,2}")


def test_an_escaped_comma_is_one_of_a_quantifier_too() -> None:
    config = build_config({**MINIMUM, "table.include.list": r"dbo\.a{1\,2},dbo\.b", "database.names": r"A\,B,C"})
    assert config.connection.databases == ("A,B", "C")
    chosen = TableFilter(config.filters).select([TableId("C", "dbo", name) for name in ("a", "aa", "aaa", "b")])
    assert [table.table for table in chosen] == ["a", "aa", "b"]


def test_lists_of_message_keys(tmp_path: Path) -> None:
    text = "database: {hostname: h, user: u, names: ['A,B', C]}\ntopic.prefix: p\nmessage.key.columns: ['dbo.a:x,y', 'b:z']"
    config = load_config(write(tmp_path, "a.yaml", text), {})
    assert config.events.message_key_columns == ("dbo.a:x,y", "b:z")
    assert config.connection.databases == ("A,B", "C")


@pytest.mark.parametrize("password", ["0123", "1_000", "12:30:45", "2024-01-01", "0x1F", "no", "1.50", "yes"])
def test_yaml_keeps_the_text(tmp_path: Path, password: str) -> None:
    text = (
        f"database.hostname: h\ndatabase.user: u\ndatabase.names: A\ntopic.prefix: p\ndatabase.password: {password}\n"
    )
    assert (
        load_config(write(tmp_path, "a.yaml", text + "tombstones.on.delete: off"), {}).connection.password == password
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "database.password: *hush\n"),
        ("a.yaml", "database.password: !hush x\n"),
        ("a.yaml", "database.password: 'hush\n"),
        ("a.json", '{"database.password": [{"a": "hush"}]}'),
        ("a.json", '{"column.mask.hash.SHA-256.with.slat.hush": "a"}'),
    ],
)
def test_errors_do_not_repeat_what_may_be_secret(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load_config(write(tmp_path, name, text), {})
    assert "hush" not in str(error.value)


def test_byte_order_mark(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "a.json", "\ufeff" + json.dumps(MINIMUM)), {}).connection.host == "db"


def test_secrets_come_from_outside_and_stay_out_of_repr(tmp_path: Path) -> None:
    secret = write(tmp_path, "secret", "p;w}d\n")
    keyed = write(tmp_path, "keyed.properties", "user=reader2\n")
    changed = {
        **MINIMUM,
        "database.password": f"${{file:{secret}}}",
        "database.user": f"${{file:{keyed}:user}}",
        "database.hostname": "${env:HOST}.example",
        "column.mask.hash.SHA-256.with.salt.pepper": "dbo.t.c",
        "lake.storage.option.AWS_SECRET_ACCESS_KEY": "hush",
    }
    config = load_config(write(tmp_path, "a.json", json.dumps(changed)), {"HOST": "h"})
    assert config.connection.password == "p;w}d"
    assert config.connection.user == "reader2"
    assert config.connection.host == "h.example"
    for hidden in ("p;w}d", "pepper", "hush"):
        assert hidden not in repr(config)


def test_environment_overrides_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", json.dumps(MINIMUM))
    variables = {"CDC_DATABASE_HOSTNAME": "other", "CDC_LAKE_PATH": "/data", "CDC_DRIVER_ENCRYPT": "strict"}
    config = load_config(path, variables)
    assert (config.connection.host, config.lake.path, config.connection.encrypt) == ("other", "/data", "strict")
    assert environment_name("base64-x.y") == "CDC_BASE64_X_Y"


def test_signal_tables_may_have_dots_in_their_names() -> None:
    config = build_config({**MINIMUM, "signal.data.collection": '[Stock].dbo.[a.b], "sales".dbo.c'})
    assert config.signals.collections == (TableId("Stock", "dbo", "a.b"), TableId("sales", "dbo", "c"))
    assert config.filters.also == {"stock.dbo.a.b", "sales.dbo.c"}
    assert signal_table(config.signals.collections, "Sales") == TableId("Sales", "dbo", "c")


def test_letter_case_of_a_signal_table_counts_only_where_two_differ_in_nothing_else() -> None:
    named, other, orders = (TableId("Sales", "dbo", name) for name in ("Ask", "ASK", "orders"))
    for tables, expected in (([named, other], named), ([other, orders], other), ([orders], None), ([], None)):
        assert signal_table((replace(named, database="SALES"),), "Sales", tables) == expected


@pytest.mark.parametrize(
    ("change", "needles"),
    [
        ({"snapshot.moed": "initial"}, ["snapshot.moed", "snapshot.mode"]),
        ({"snapshot.mode": "sometimes"}, ["snapshot.mode", "sometimes", "initial_only", "no_data"]),
        ({"decimal.handling.mode": "exact"}, ["decimal.handling.mode", "exact", "precise, double, string"]),
        ({"database.port": "70000"}, ["database.port", "70000", "65535"]),
        ({"poll.interval.ms": "half"}, ["poll.interval.ms", "half", "milliseconds"]),
        ({"tombstones.on.delete": "maybe"}, ["tombstones.on.delete", "maybe", "true or false"]),
        ({"table.include.list": "dbo.(a"}, ["table.include.list", "dbo.(a", "does not compile"]),
        ({"table.include.list": r"dbo\.[a-z&&[^x]].*"}, ["table.include.list", "&&", "does not compile"]),
        ({"table.include.list": r"dbo\.\p{Alpha}+"}, ["table.include.list", "bad escape", "does not compile"]),
        ({"message.key.columns": "dbo.a"}, ["message.key.columns", "dbo.a", "semicolon"]),
        ({"skipped.operations": "c,x"}, ["skipped.operations", "c,x"]),
        ({"topic.prefix": "a b"}, ["topic.prefix", "a b", "letters"]),
        ({"table.include.list": "a", "table.exclude.list": "b"}, ["table.exclude.list", "nothing beside"]),
        ({"signal.data.collection": "db.dbo.signal"}, ["db.dbo.signal", "database.names"]),
        ({"signal.data.collection": "dbo.signal"}, ["dbo.signal", "database.schema.table"]),
        ({"signal.data.collection": "[SalesDb].[dbo.signal"}, ["[SalesDb].[dbo.signal", "database.schema.table"]),
        ({"signal.enabled.channels": "jmx"}, ["jmx", "source, file, kafka"]),
        ({"signal.enabled.channels": "kafka"}, ["signal.kafka.bootstrap.servers", "host:port"]),
        ({"driver.aplicationIntent": "ReadOnly"}, ["driver.aplicationIntent", "applicationintent"]),
        ({"column.mask.with.many.chars": "a"}, ["many", "whole number"]),
        ({"column.mask.hash.ROT13.with.salt.s": "a"}, ["ROT13", "SHA-256"]),
        ({"notification.enabled.channels": "sink"}, ["notification.sink.topic.name"]),
        ({"notification.enabled.channels": "jmx"}, ["jmx", "sink, log"]),
        ({"snapshot.select.statement.overrides": "[dbo.a"}, ["[dbo.a", "brackets"]),
        ({"snapshot.select.statement.overrides.dbo.a": "SELECT 1"}, ["dbo.a", "list"]),
        ({"database.user": ""}, ["database.user", "login"]),
        ({"database.names": "a,,b"}, ["database.names", "a,,b"]),
        ({"database.names": "a,a"}, ["database.names", "each once"]),
        ({"message.key.columns": "dbo.a:x,X"}, ["message.key.columns", "each column once"]),
        ({"message.key.columns": "dbo.(a:x"}, ["message.key.columns", "does not compile"]),
        ({"topic.prefix": ".."}, ["topic.prefix", "not `.` or `..`"]),
        ({"topic.heartbeat.name": "../x"}, ["topic.heartbeat.name", "../x", "letters"]),
        ({"notification.sink.topic.name": "a/b"}, ["notification.sink.topic.name", "a/b", "letters"]),
        ({"lake.retention.hours": "0"}, ["lake.retention.hours", "from 1 to"]),
        ({"converters": "iso", "iso.type": "a.B"}, ["converters", "classes of the JVM", "remove"]),
        ({"transforms": "un", "transforms.un.type": "a.B"}, ["transforms", "never the lake", "remove"]),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, str], needles: list[str]) -> None:
    with pytest.raises(ConfigurationError) as error:
        build_config({**MINIMUM, **change})
    for needle in needles:
        assert needle in str(error.value)


@pytest.mark.parametrize("name", ["database.hostname", "database.names", "topic.prefix"])
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
        build_config({key: text for key, text in MINIMUM.items() if key != name})


@pytest.mark.parametrize(
    ("name", "text", "needle"),
    [
        ("a.json", '{"a": 1, "a": 2}', "each property once"),
        ("a.json", '{"a": {"b": 1}, "a.b": 2}', "each property once"),
        ("a.yaml", "a: 1\nb: 2\na: 3", "each property once"),
        ("a.yaml", "a: {b: 1}\na.b: 2", "each property once"),
        ("a.yaml", "a: b: c", "line 1, column 5"),
        ("a.json", "{", "line 1"),
        ("a.json", "[]", "object"),
        ("a.yaml", "a: [", "YAML"),
        ("a.toml", "", "ending in"),
        ("a.json", '{"topic.prefix": "${vault:x}"}', "${env:NAME}"),
        ("a.json", '{"topic.prefix": "${env:MISSING}"}', "MISSING"),
        ("a.json", '{"database.password": "${file:/nowhere/x}"}', "/nowhere/x"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, text: str, needle: str) -> None:
    with pytest.raises(ConfigurationError, match="(?s).*" + needle.replace("$", r"\$").replace("{", r"\{")):
        load_config(write(tmp_path, name, text), {})


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="readable"):
        load_config(tmp_path / "none.json", {})


def test_driver_options_in_both_spellings() -> None:
    config = build_config(
        {
            **MINIMUM,
            "database.encrypt": "false",
            "driver.TrustServerCertificate": "true",
            "database.applicationIntent": "ReadOnly",
            "database.sendStringParametersAsUnicode": "false",
            "driver.packetSize": "16000",
        }
    )
    assert config.connection.encrypt == "no"
    assert config.connection.trust_server_certificate is True
    assert dict(config.connection.extra) == {"ApplicationIntent": "ReadOnly", "PacketSize": "16000"}
    assert [name for name, _ in config.ignored] == ["driver.sendstringparametersasunicode"]


@pytest.mark.parametrize(
    ("name", "topic", "other"),
    [
        ("topic.heartbeat.name", "Shop", "topic.prefix"),
        ("topic.heartbeat.name", "shop.transaction", "topic.transaction"),
        ("topic.heartbeat.name", "shop.__windows", "own records"),
        ("topic.transaction", "__schema_history", "own records"),
        ("notification.sink.topic.name", "shop", "topic.prefix"),
        ("notification.sink.topic.name", "__debezium-heartbeat.shop", "topic.heartbeat.prefix"),
    ],
)
def test_own_topics_have_names_of_their_own(name: str, topic: str, other: str) -> None:
    """Heartbeats in the topic of schema changes, numbered by the clock, made later schema changes count as written."""
    used = {
        "heartbeat.interval.ms": "1000",
        "provide.transaction.metadata": "true",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": "shop.notices",
    }
    assert build_config(MINIMUM | used).name == "shop"
    with pytest.raises(ConfigurationError, match=f"{re.escape(name)} .*{re.escape(other)}"):
        build_config(MINIMUM | used | {name: topic})
    if other == "topic.prefix":
        assert build_config(MINIMUM | used | {name: topic, "include.schema.changes": "false"}).name == "shop"


def test_of_both_names_of_an_option_the_older_holds() -> None:
    """As in the connector (`SqlServerConnectorConfig.getJdbcConfig`), whatever their order; but the environment holds."""
    newer = {"driver.encrypt": "strict", "driver.applicationIntent": "ReadWrite"}
    older = {"database.encrypt": "false", "database.applicationIntent": "ReadOnly"}
    for both in (newer | older, older | newer):
        found = build_config(MINIMUM | both).connection
        assert (found.encrypt, found.extra) == ("no", (("ApplicationIntent", "ReadOnly"),))
    assert config_of(MINIMUM | older, {"CDC_DRIVER_ENCRYPT": "strict"}).connection.encrypt == "strict"


def test_options_that_only_the_jdbc_driver_has_are_named() -> None:
    given = ("enablePrepareOnFirstPreparedStatementCall", "serverNameAsACE", "socketFactoryClass")
    config = build_config(MINIMUM | {f"driver.{option}": "x" for option in given})
    assert [name for name, _ in config.ignored] == [f"driver.{option}" for option in given]


@pytest.mark.parametrize(("text", "is_told"), [("Enabled", True), ("Disabled", False)])
def test_encrypted_columns_stay_encrypted(text: str, is_told: bool) -> None:
    ((_, reason),) = build_config(MINIMUM | {"driver.columnEncryptionSetting": text}).ignored
    assert ("column.exclude.list" in reason) == is_told


def test_column_rules_keep_their_order() -> None:
    config = build_config(
        {
            **MINIMUM,
            "column.truncate.to.3.chars": "dbo.a.x",
            "column.mask.hash.v2.SHA-256.with.salt.sa.lt": "dbo.a.y",
            "column.mask.hash.MD5.with.salt.q": "dbo.a.z",
            "column.mask.with.0.chars": "dbo.a.w",
        }
    )
    rules = config.events.column_rules
    assert [rule.kind for rule in rules] == ["truncate", "hash_v2", "hash", "mask"]
    assert (rules[1].algorithm, rules[1].salt, rules[0].length) == ("SHA-256", "sa.lt", 3)


@pytest.mark.parametrize(
    ("text", "value"), [("hex:5f2d5f", "_-_"), ("hex:C3A9", "é"), ("hexagon", "hexagon"), ("Hex:5f", "Hex:5f")]
)
def test_a_placeholder_may_be_given_by_its_octets(text: str, value: str) -> None:
    """As to the connector, whose values have these octets."""
    assert config_of(MINIMUM | {"unavailable.value.placeholder": text}).events.unavailable_value == value


@pytest.mark.parametrize("text", ["hex:5", "hex:zz", "hex:ff"])
def test_octets_that_are_no_text_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"unavailable\.value\.placeholder.*octets"):
        config_of(MINIMUM | {"unavailable.value.placeholder": text})


def test_overrides_by_bare_name() -> None:
    config = build_config(
        {
            **MINIMUM,
            "snapshot.select.statement.overrides": "[dbo].[a], Sales.dbo.b",
            "snapshot.select.statement.overrides.Sales.dbo.b": "SELECT * FROM dbo.b WHERE x = 1",
            "snapshot.select.statement.overrides.dbo.a": "SELECT * FROM dbo.a",
        }
    )
    assert [table for table, _ in config.snapshot.overrides] == ["dbo.a", "Sales.dbo.b"]


def test_overrides_of_odd_names_and_without_statement() -> None:
    config = build_config(
        {
            **MINIMUM,
            "snapshot.select.statement.overrides": 'dbo.c , [my db].[dbo].[a.b, c], "dbo"."x""y"',
            "snapshot.select.statement.overrides.[my db].dbo.[a.b, c]": "SELECT 1 AS id",
            'snapshot.select.statement.overrides.dbo.[x"y]': "SELECT 2 AS id",
        }
    )
    assert config.snapshot.override_of(TableId("MY DB", "dbo", "a.b, c")) == "SELECT 1 AS id"
    assert config.snapshot.override_of(TableId("any", "DBO", 'x"y')) == "SELECT 2 AS id"
    assert config.snapshot.override_of(TableId("any", "dbo", "c")) == ""
    [(name, reason)] = config.ignored
    assert (name, "dbo.c is read like any other" in reason) == ("snapshot.select.statement.overrides", True)


def test_read_uncommitted_is_read_committed_and_says_so() -> None:
    config = build_config({**MINIMUM, "snapshot.isolation.mode": "READ_UNCOMMITTED"})
    assert config.snapshot.isolation == "read_committed"
    [(name, reason)] = config.ignored
    assert (name, "rolled back" in reason) == ("snapshot.isolation.mode", True)
    assert build_config({**MINIMUM, "snapshot.isolation.mode": "read_committed"}).ignored == ()


@pytest.mark.parametrize("tables", [["dbo.b", "[dbo].[a,b]"], r"dbo.b, dbo.a\,b", "dbo.b,[dbo].[a,b]"])
def test_overrides_of_a_name_with_a_comma(tables: object) -> None:
    given = {"snapshot.select.statement.overrides": tables, "snapshot.select.statement.overrides.dbo.a,b": "SELECT 1"}
    assert config_of(MINIMUM | given, {}).snapshot.overrides == (("dbo.a,b", "SELECT 1"),)


def test_multiplier_of_one_table() -> None:
    many = {"snapshot.max.threads.multiplier": "2", "snapshot.max.threads.multiplier.dbo.[big]": "5"}
    settings = build_config({**MINIMUM, **many}).snapshot
    assert [settings.slices_of(TableId("d", "dbo", name)) for name in ("small", "Big")] == [2, 5]
    with pytest.raises(ConfigurationError, match="1 to 1024"):
        build_config({**MINIMUM, "snapshot.max.threads.multiplier.dbo.big": "0"})


def test_refused_property_with_its_default_changes_nothing() -> None:
    assert build_config({**MINIMUM, "signal.enabled.channels": "source"}).name == "shop"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a : b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("a=\\u0041\\n\\:", {"a": "A\n:"}),
        ("! no\n#no\n\na=1,\\\n   2", {"a": "1,2"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\u3000b=\u00a0c", {"a\u3000b": "\u00a0c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
    ],
)
def test_java_properties(text: str, expected: dict[str, str]) -> None:
    assert parse_java_properties(text) == expected


@given(st.dictionaries(st.text("abc.=: #!\\é", min_size=1), st.text("xyz \t\n\\=:#!,é"), max_size=5))
def test_java_properties_round_trip(pairs: dict[str, str]) -> None:
    def escape(text: str) -> str:
        return "".join(f"\\u{ord(char):04x}" if char not in "abcxyz." else char for char in text)

    text = "\n".join(f"{escape(name)}={escape(value)}" for name, value in pairs.items())
    assert parse_java_properties(text) == pairs


@pytest.mark.parametrize("mode", ["warn", "skip"])
def test_a_refused_value_tells_why(mode: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no single event could be skipped here.*loses nothing"):
        build_config(MINIMUM | {"event.processing.failure.handling.mode": mode})


def test_properties_in_python_are_nested_or_dotted_and_may_be_numbers() -> None:
    given = {
        "topic.prefix": "erp",
        "database": {"hostname": "db", "port": 1500, "names": ["A", "B"], "user": "u", "password": "${env:ERP}"},
        "lake.path": "lake",
        "tombstones.on.delete": False,
    }
    config = config_of(given, {"ERP": "secret"})
    assert (config.connection.port, config.connection.databases) == (1500, ("A", "B"))
    assert config.connection.password == "secret"
    assert not config.events.tombstones_on_delete


@pytest.mark.parametrize("value", [10**5000, float("nan"), float("inf"), object(), b"1"], ids=range(5))
def test_values_that_no_property_has(value: object) -> None:
    given = {"topic.prefix": "erp", "database.hostname": "db", "database.port": value}
    with pytest.raises(ConfigurationError, match=r"database\.port"):
        config_of(given, {})


COMPONENT = """
type: cdc_assets.SqlServerCdcComponent
attributes:
  properties:
    name: sales
    topic.prefix: shop
    database.hostname: "{{ env.DB_HOST }}"
    database.user: ${env:DB_USER}
    database.password: ${env:DB_PASSWORD}
    database.names: [SalesDb, StockDb]
    driver.encrypt: "no"
    lake.path: var/lake
  translation:
    key: "sales/{{ table }}.{{ role }}"
"""


def test_a_component_is_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "defs.yaml"
    path.write_text(COMPONENT)
    config = load_config(path, {"DB_HOST": "db", "DB_USER": "u", "DB_PASSWORD": "secret"})
    assert (config.name, config.connection.host, config.connection.password) == ("sales", "db", "secret")
    assert config.connection.databases == ("SalesDb", "StockDb")


def test_a_component_may_name_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text(json.dumps(MINIMUM))
    path = tmp_path / "defs.yaml"
    path.write_text("type: shop.OwnComponent\nattributes: {config_file: shop.json}\n")
    assert load_config(path, {}) == load_config(tmp_path / "shop.json", {})


@pytest.mark.parametrize(
    ("attributes", "needle"),
    [
        ("{project: x}", "properties or config_file of a capture"),
        ("{properties: {name: '{{ my_name() }}'}}", r"name.*\{\{ … \}\}.*only Dagster knows"),
    ],
)
def test_a_component_that_cannot_be_read_says_why(tmp_path: Path, attributes: str, needle: str) -> None:
    path = tmp_path / "defs.yaml"
    path.write_text(f"type: x.Component\nattributes: {attributes}\n")
    with pytest.raises(ConfigurationError, match=needle):
        load_config(path, {})
