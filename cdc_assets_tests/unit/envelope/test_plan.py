"""What a plan decides: names, columns, keys, schemas, warnings."""

import hashlib
import json
import pickle
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.config.filters import TableFilter
from cdc_assets.config.settings import AdjustmentMode, ColumnRule, EventSettings, FilterSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.envelope.amend import mark
from cdc_assets.envelope.json import to_json
from cdc_assets.envelope.json_schema import schema_of
from cdc_assets.envelope.naming import adjusted, check_conflicts, topic_name
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.envelope.reads import ReadContext, build_reads
from cdc_assets.errors import ConfigurationError, InvalidValueError
from cdc_assets_tests.unit.envelope.building import change, change_batch, changed, column, plan_of, table_batch

SHOP = EventSettings("shop")
ID = column("id", "int", nullable=False)
NOTE = column("note", "varchar", length=20)
QTY = column("qty", "int")
AT = ("00000001:00000001:0001", "00000001:00000001:0002")


def fields(plan: EventPlan, image: str = "after") -> list[str]:
    kind = plan.topic_schema.field("value").type.field(image).type
    return [kind.field(place).name for place in range(kind.num_fields)]


def parameters(plan: EventPlan, name: str) -> dict[str, str]:
    found: dict[str, str] = schema_of(plan.topic_schema.field("value").type.field("after").type.field(name)).get(
        "parameters", {}
    )
    return found


def test_a_plan_travels() -> None:
    rule = ColumnRule("hash", (".*note",), algorithm="SHA-256", salt="s")
    plan = plan_of("t", [ID, NOTE], settings=replace(SHOP, column_rules=(rule,)))
    batch = change_batch(plan, [(change(*AT, 2), [1, "a"])])
    assert changed(pickle.loads(pickle.dumps(plan)), batch).equals(changed(plan, batch))  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("table", "topic"),
    [
        ("orders", "shop.SalesDb.dbo.orders"),
        ("UAT WAG CZ$Fixed Asset #1", "shop.SalesDb.dbo.UAT_WAG_CZ_Fixed_Asset__1"),
        ("żółw", "shop.SalesDb.dbo.____"[:-1] + "w"),
        ("\U00020bb7x", "shop.SalesDb.dbo.__x"),
    ],
)
def test_topics(table: str, topic: str) -> None:
    assert topic_name(TableId("SalesDb", "dbo", table), SHOP) == topic


def test_a_topic_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="249"):
        topic_name(TableId("d" * 120, "dbo", "t" * 128), SHOP)


def test_own_pattern_and_delimiter() -> None:
    settings = replace(SHOP, sanitize_pattern="[^a-z-]", topic_delimiter="-")
    assert topic_name(TableId("db", "dbo", "t.1"), settings) == "shop-db-dbo-t__"


def test_letters_of_other_scripts_may_stay() -> None:
    settings = replace(SHOP, sanitize_pattern=r"[^\w.-]")
    assert topic_name(TableId("db", "dbo", "注文 明細"), settings) == "shop.db.dbo.注文_明細"
    with pytest.raises(ConfigurationError, match="249 bytes"):
        topic_name(TableId("db", "dbo", "注" * 100), settings)


@pytest.mark.parametrize("table", ["../../x", "a/b", "a%20b", "a#b", "a?b", "a@2", "a\\b", "a\nb"])
def test_what_no_directory_can_be_named_is_refused(table: str) -> None:
    assert set(topic_name(TableId("db", "dbo", table), SHOP)) <= set("shop.db.dbo.abx20_")
    with pytest.raises(ConfigurationError, match=r"topic\.sanitize\.pattern"):
        topic_name(TableId("db", "dbo", table), replace(SHOP, sanitize_pattern="!"))


def test_tables_that_share_a_topic_are_refused() -> None:
    tables = [TableId("db", "dbo", name) for name in ("a b", "a_b")]
    with pytest.raises(ConfigurationError, match=r"exclude db\.dbo\.a b or db\.dbo\.a_b"):
        check_conflicts(tables, SHOP)
    check_conflicts([tables[0], tables[0]], SHOP)
    with pytest.raises(ConfigurationError):
        check_conflicts([TableId("db", "dbo", "T"), TableId("db", "dbo", "t")], SHOP)


def test_no_table_has_a_topic_of_the_capture_itself() -> None:
    table = TableId("db", "dbo", "notices")
    check_conflicts([table], SHOP, ["shop.transaction"])
    with pytest.raises(ConfigurationError, match=r"events of db\.dbo\.notices alone.*exclude db\.dbo\.notices"):
        check_conflicts([table], SHOP, ["shop.db.dbo.Notices"])


def test_of_two_tables_that_differ_in_case_one_can_be_left_out() -> None:
    tables = [TableId("db", "dbo", "Orders"), TableId("db", "dbo", "orders")]
    with pytest.raises(ConfigurationError, match=r"\(\?-i:Name\)"):
        check_conflicts(tables, SHOP)
    filters = TableFilter(FilterSettings(table_exclude=("dbo.(?-i:Orders)",)))
    assert filters.select(tables) == tables[1:]


def test_no_topic_has_the_name_of_the_mirror_of_another() -> None:
    orders = TableId("db", "dbo", "orders")
    for name in ("orders.__current", "Orders.__History"):
        other = TableId("db", "dbo", name)
        check_conflicts([other], SHOP)
        for tables in ([orders, other], [other, orders]):
            with pytest.raises(ConfigurationError, match=r"another name than the mirror of db\.dbo\.orders has"):
                check_conflicts(tables, SHOP)
    check_conflicts([orders, TableId("db", "dbo", "__history")], SHOP)


@pytest.mark.parametrize(
    ("name", "mode", "dots", "expected"),
    [
        ("1st.my-col", "none", False, "1st.my-col"),
        ("1st.my-col", "avro", True, "_1st.my_col"),
        ("1st.my-col", "avro", False, "_1st_my_col"),
        ("-a", "avro", False, "_a"),
        ("\U0001f600a\U0001f600", "avro", False, "__a__"),
        ("a_b-c", "avro_unicode", False, "a_u005fb_u002dc"),
        ("1a", "avro_unicode", False, "_u0031a"),
        ("a.b", "avro_unicode", True, "a.b"),
        ("ż\U0001f600", "avro_unicode", False, "_u017c_ud83d_ude00"),
    ],
)
def test_adjusted_names(name: str, mode: AdjustmentMode, dots: bool, expected: str) -> None:
    assert adjusted(name, mode, dots=dots) == expected


def test_adjusted_fields_and_schemas() -> None:
    settings = EventSettings("my-shop", schema_name_adjustment="avro", field_name_adjustment="avro")
    plan = plan_of("t", [column("the id", "int", nullable=False), NOTE], ("the id",), settings)
    assert fields(plan) == ["the_id", "note"]
    schema = schema_of(plan.topic_schema.field("key"))
    assert schema["name"] == "my_shop.TestDB.dbo.t.Key"
    assert schema["fields"][0]["field"] == "the_id"
    assert plan.topic == "my-shop.TestDB.dbo.t"
    assert plan.select_list("") == "[the id] AS [the id], [note] AS [note]"


def test_fields_that_collide_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="exclude"):
        plan_of("t", [ID, column("Note", "int"), NOTE])
    with pytest.raises(ConfigurationError):
        plan_of(
            "t", [ID, column("a b", "int"), column("a-b", "int")], settings=replace(SHOP, field_name_adjustment="avro")
        )


def filtered(**filters: tuple[str, ...]) -> EventSettings:
    return replace(SHOP, **filters)


def test_column_filters_keep_the_key() -> None:
    plan = plan_of("t", [ID, NOTE, QTY], settings=filtered(column_include=(r"dbo\.t\.NOTE",)))
    assert fields(plan) == ["note"]
    assert [one.name for one in plan.columns] == ["id", "note"]
    (event,) = changed(plan, change_batch(plan, [(change(*AT, 2), [1, "a"])])).to_pylist()
    assert (event["key"], event["value"]["after"]) == ({"id": 1}, {"note": "a"})
    assert fields(plan_of("t", [ID, NOTE, QTY], settings=filtered(column_exclude=(r"dbo\..*\.(note|x)",)))) == [
        "id",
        "qty",
    ]


def test_filters_that_let_nothing_through_are_ignored() -> None:
    plan = plan_of("t", [ID, NOTE], settings=filtered(column_include=("dbo.other.x",)))
    assert fields(plan) == ["id", "note"]
    assert "All columns of TestDB.dbo.t were excluded" in plan.warnings[0]


def test_only_captured_columns_are_read() -> None:
    plan = plan_of("t", [ID, NOTE, QTY], captured=["qty", "id", "gone"])
    assert fields(plan) == ["id", "qty"]
    assert [one.bit for one in plan.columns] == [1, 0]
    assert "'gone' of the capture table is not among the columns" in plan.warnings[0]


def test_types_that_events_cannot_hold_are_left_out_with_one_warning() -> None:
    plan = plan_of("t", [ID, column("g", "geography"), column("v", "sql_variant")])
    assert fields(plan) == ["id"]
    assert len(plan.warnings) == 2
    assert "has type geography" in plan.warnings[0]


def test_a_table_without_key() -> None:
    plan = plan_of("t", [ID, NOTE], ())
    (event,) = changed(plan, change_batch(plan, [(change(*AT, 2), [1, "a"])])).to_pylist()
    assert event["key"] is None
    assert plan.topic_schema.field("key").type == pa.string()


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ("dbo.t:note,id", ("note", "id")),
        (r"testdb\.dbo\..*:Note", ("note",)),
        ("dbo.other:note", ("id",)),
        (".*:note;dbo.t:id", ("note", "id")),
        (".*:id;dbo.t:id,note", ("id", "note")),
        ("dbo.t:.*", ("id", "note")),
        ("dbo.t:nope", ("id",)),
        ("dbo.t:nope,note", ("note",)),
        ("dbo.t :note", ("id",)),
        (r"dbo\.t{1\,2}:note", ("note",)),
    ],
)
def test_message_keys(entry: str, key: tuple[str, ...]) -> None:
    """As the connector has them; measured with its class `Key`, which repeats a column that two entries name, and so fails."""
    plan = plan_of("t", [ID, NOTE], settings=replace(SHOP, message_key_columns=tuple(entry.split(";"))))
    assert plan.key == key
    about_keys = [text for text in plan.warnings if "message.key.columns" in text]
    assert about_keys == [text for text in about_keys if "dbo.t:nope of" in text]
    assert bool(about_keys) == (entry == "dbo.t:nope,note"), "one that names nothing at all is told when a run begins"
    names = schema_of(plan.topic_schema.field("key"))["fields"]
    assert [(one["field"], one["optional"]) for one in names] == [(name, name == "note") for name in key]


def test_an_expression_of_a_message_key_names_columns_that_end_alike() -> None:
    """The dot between the table and the column is one of the expression, as in the connector."""
    columns = [ID, column("customer_id", "int"), column("paid", "bit"), NOTE]
    assert plan_of("t", columns, settings=replace(SHOP, message_key_columns=(".*:id",))).key == (
        "id",
        "customer_id",
        "paid",
    )
    assert plan_of("t", columns, settings=replace(SHOP, message_key_columns=("dbo.t:id",))).key == ("id",)


def test_a_message_key_that_does_not_compile() -> None:
    with pytest.raises(ConfigurationError, match=r"message\.key\.columns.*compile"):
        plan_of("t", [ID, NOTE], settings=replace(SHOP, message_key_columns=("dbo.(t:id",)))


def test_rules_reach_values_and_not_keys() -> None:
    rules = (
        ColumnRule("hash", (r"dbo\.t\.a",), algorithm="MD5", salt="s"),
        ColumnRule("mask", (r"TestDB\.dbo\.t\.code",), length=3),
        ColumnRule("truncate", (".*note",), length=2),
    )
    columns = [column("code", "varchar", length=5, nullable=False), NOTE, column("a", "int")]
    plan = plan_of("t", columns, ("code",), replace(SHOP, column_rules=rules))
    (event,) = changed(plan, change_batch(plan, [(change(*AT, 2), ["abc", "xyz", 1])])).to_pylist()
    assert (event["key"], event["value"]["after"]) == ({"code": "abc"}, {"code": "***", "note": "xy", "a": 1})
    assert parameters(plan, "code") == parameters(plan, "a") == {"masked": "true"}
    assert parameters(plan, "note") == {"truncateLength": "2"}
    assert "parameters" not in schema_of(plan.topic_schema.field("key"))["fields"][0]


def test_source_types_are_propagated() -> None:
    settings = replace(SHOP, propagate_columns=(r"dbo\.t\.id",), propagate_types=(r".*\.decimal", r".*\.datetime2"))
    columns = [
        column("id", "int", nullable=False, identity=True),
        NOTE,
        column("d", "decimal", precision=9, scale=2),
        column("at", "datetime2", scale=3),
    ]
    plan = plan_of("t", columns, settings=settings)
    source = "__debezium.source.column."
    assert parameters(plan, "id") == {
        f"{source}type": "INT IDENTITY",
        f"{source}length": "10",
        f"{source}scale": "0",
        f"{source}name": "id",
    }
    assert parameters(plan, "note") == {}
    assert list(parameters(plan, "d").items())[:3] == [
        ("scale", "2"),
        ("connect.decimal.precision", "9"),
        (f"{source}type", "DECIMAL"),
    ]
    assert parameters(plan, "at")[f"{source}length"] == "23"


def test_a_propagated_type_does_not_switch_a_hash_off() -> None:
    """The real connector lets the plain value through here, because only its first matching rule counts."""
    rule = ColumnRule("hash_v2", (r"dbo\.t\.note",), algorithm="MD5", salt="s")
    plan = plan_of("t", [ID, NOTE], settings=replace(SHOP, column_rules=(rule,), propagate_columns=(".*",)))
    (event,) = changed(plan, change_batch(plan, [(change(*AT, 2), [1, "secret"])])).to_pylist()
    assert event["value"]["after"]["note"] == hashlib.md5(b"ssecret", usedforsecurity=False).hexdigest()[:20]
    assert list(parameters(plan, "note")) == [
        "__debezium.source.column.type",
        "__debezium.source.column.length",
        "__debezium.source.column.name",
        "masked",
    ]


def test_headers_can_be_left_out() -> None:
    plan = plan_of("t", [ID, NOTE], settings=replace(SHOP, extended_headers=False))
    (event,) = changed(plan, change_batch(plan, [(change(*AT, 2), [1, "a"])])).to_pylist()
    assert event["headers"] == []


def test_slice_numbers_have_two_bytes() -> None:
    with pytest.raises(InvalidValueError, match="65535"):
        ReadContext(1, Lsn(bytes(10)), datetime(2026, 11, 21, tzinfo=UTC), 65_536)


def test_computed_columns_are_optional() -> None:
    plan = plan_of("t", [ID, column("twice", "int", nullable=False, computed=True)])
    (event,) = changed(plan, change_batch(plan, [(change(*AT, 2), [1, None])])).to_pylist()
    assert event["value"]["after"] == {"id": 1, "twice": None}


def test_a_computed_key_is_warned_of() -> None:
    columns = [column("id", "int", nullable=False), column("twice", "int", nullable=False, computed=True)]
    [text] = plan_of("t", columns, key=("twice",)).warnings
    assert "'twice'" in text
    assert "message.key.columns" in text
    assert plan_of("t", columns, key=("id",)).warnings == ()


@pytest.mark.parametrize(
    ("key", "rule", "word"),
    [
        (("mail",), "mask", "masked in values"),
        (("mail",), "hash", "masked in values"),
        (("mail",), "truncate", ""),
        (("id",), "mask", ""),
        (("id", "place"), "mask", "lacks place"),
    ],
)
def test_keys_that_tell_too_much_or_too_little_are_warned_of(key: tuple[str, ...], rule: Any, word: str) -> None:
    columns = [
        column("id", "int", nullable=False),
        column("mail", "varchar", length=50, nullable=False),
        column("place", "geography"),
    ]
    rules = (ColumnRule(rule, (".*",), length=5, algorithm="MD5"),)
    told = plan_of("t", columns, key=key, settings=replace(SHOP, column_rules=rules)).warnings
    about_keys = [text for text in told if "message.key.columns" in text]
    assert len(about_keys) == bool(word)
    assert all(word in text for text in about_keys)


def test_a_null_that_cannot_be_gets_default_or_zero() -> None:
    columns = [
        ID,
        column("flag", "bit", nullable=False),
        column("state", "varchar", length=9, nullable=False, default="('new')"),
        column("at", "datetimeoffset", nullable=False),
        column("d", "date", nullable=False),
    ]
    plan = plan_of("t", columns, settings=replace(SHOP, time_mode="isostring"))
    (event,) = changed(plan, change_batch(plan, [(change(*AT, 2), [1, None, None, None, None])])).to_pylist()
    assert event["value"]["after"] == {
        "id": 1,
        "flag": False,
        "state": "new",
        "at": "1970-01-01T00:00:00Z",
        "d": "1970-01-01Z",
    }


def test_the_2_3_form() -> None:
    plan = plan_of("t", [ID, NOTE], settings=replace(SHOP, event_version="2.3"))
    (batch,) = changed(plan, change_batch(plan, [(change(*AT, 2), [1, "a"])])).to_batches()
    _, value, headers = to_json(batch.schema, batch, schemas=True)
    message = json.loads(value[0].as_py())
    assert headers[0].as_py() == "{}"
    assert list(message["payload"]) == ["before", "after", "source", "op", "ts_ms", "transaction"]
    assert message["schema"]["version"] == 1
    source = message["schema"]["fields"][2]
    assert "version" not in source
    assert [field["field"] for field in source["fields"]] == list(message["payload"]["source"])
    assert list(message["payload"]["source"]) == [
        "version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "schema", "table", "change_lsn",
        "commit_lsn", "event_serial_no",
    ]  # fmt: skip


def test_reads_sort_behind_their_snapshot_s_commit() -> None:
    plan = plan_of("t", [ID, NOTE])
    lsn = Lsn.parse("00000001:00000001:0001")
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    batches = [table_batch(plan, [[1, "a"], [2, "b"]]), table_batch(plan, [[3, "c"]])]
    positions: list[str] = []
    for window, number in ((4, 0), (4, 1), (5, 0)):
        context = ReadContext(window, lsn, moment, number)
        for built in build_reads(plan, iter(batches), context):
            positions += built.column("position").to_pylist()
    assert len(positions) == 9
    assert positions == sorted(set(positions))
    assert str(Position(lsn, 1, Lsn.from_int(2**80 - 1), 4)) < positions[0]
    assert positions[-1] < str(Position(lsn.next(), 0, Lsn(bytes(10)), 1))
    assert Position.parse(positions[0]).commit_lsn == lsn


def test_markers() -> None:
    plan = plan_of("t", [ID, NOTE])
    context = ReadContext(1, Lsn(bytes(10)), datetime(2026, 11, 21, tzinfo=UTC))
    (batch,) = build_reads(plan, iter([table_batch(plan, [[1, "a"], [2, "b"], [3, "c"]])]), context)
    marked = mark(mark(batch, 0, "first"), -1, "last")
    assert [row["value"]["source"]["snapshot"] for row in marked.to_pylist()] == ["first", "true", "last"]
    assert marked.schema.equals(plan.topic_schema, check_metadata=True)
    with pytest.raises(InvalidValueError, match="first_in_data_collection"):
        mark(batch, 0, "firstly")
