"""Topic tables: one commit per window, structure that follows, generations."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.config.settings import BinaryMode, EventSettings
from cdc_assets.core.schema import Column
from cdc_assets.errors import FencedError, LakeConflictError, LakeError
from cdc_assets.lake.evolution import fields_to_add, is_compatible, lake_schema
from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.location import Location
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.unit.envelope.building import plan_of
from cdc_assets_tests.unit.lake.writing import batch_of, schema_of, write


@pytest.fixture(params=["path", "url"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> TopicTables:
    return TopicTables(Location(str(tmp_path) if request.param == "path" else f"file://{tmp_path}"), "shop")


def test_a_window_is_committed_once(tables: TopicTables) -> None:
    schema = schema_of(id=pa.int32())
    files = write(tables, schema, 7, {"id": 1}, None)
    assert tables.reached("topic") == -1
    assert tables.commit("topic", schema, files, 7, {"from_lsn": "a", "to_lsn": "b"})
    assert not tables.commit("topic", schema, write(tables, schema, 7, {"id": 1}), 7, {})
    assert not tables.commit("topic", schema, write(tables, schema, 6, {"id": 1}), 6, {})
    other = TopicTables(tables.location, "shop")
    assert other.reached("topic") == 7
    assert other.row_count("topic") == 2
    newest = DeltaTable(tables.location.uri("topic")).history(1)[0]
    assert (newest["from_lsn"], newest["to_lsn"]) == ("a", "b")


def test_files_that_were_checked_are_looked_at_again_if_others_were_checked_since(
    tables: TopicTables, tmp_path: Path
) -> None:
    """So that what a process remembers of files does not grow, whatever becomes of them."""
    schema = schema_of(id=pa.int32())
    lost, files = write(tables, schema, 1, {"id": 1}), write(tables, schema, 2, {"id": 2})
    tables.require_files({"topic": lost})
    (tmp_path / "topic" / lost[0].path).unlink()
    tables.require_files({"topic": files})
    with pytest.raises(LakeError, match="shared"):
        tables.commit("topic", schema, lost, 1, {})
    assert tables.commit("topic", schema, files, 2, {})


def test_a_window_that_is_found_leaves_the_mark_that_its_commit_would_have_left(tables: TopicTables) -> None:
    schema = schema_of(id=pa.int32())
    woken, successor = (TopicTables(tables.location, "shop") for _ in range(2))
    files = write(tables, schema, 3, {"id": 1}, {"id": 2})
    assert woken.commit("topic", schema, files, 3, {})
    assert not successor.commit("topic", schema, write(tables, schema, 3, {"id": 1}, {"id": 2}), 3, {})
    [made] = woken.fresh_marks().values()
    left = {"topic": replace(made, checked=-1)}  # who has not made the table has not read its log
    assert successor.fresh_marks() == left
    asking = TopicTables(tables.location, "shop")
    assert (asking.committed("topic", 3), asking.committed("topic", 4)) == (True, False)
    assert asking.fresh_marks() == left
    asking.forget_marks(asking.fresh_marks())
    assert asking.committed("topic", 3)
    assert asking.fresh_marks() == {}, "once"


def test_a_window_that_was_left_out_is_never_committed(tables: TopicTables) -> None:
    schema = schema_of(id=pa.int32())
    tables.ensure("topic", schema)
    woken = TopicTables(tables.location, "shop")
    assert woken.reached("topic") == -1
    files = write(tables, schema, 3, {"id": 1})
    assert tables.leave_out("topic", 3)
    assert tables.leave_out("topic", 3), "again, by a repeat"
    assert (tables.committed("topic", 3), tables.left_out("topic", 3)) == (False, True)
    with pytest.raises(FencedError, match="left the table out of window 3"):
        woken.commit("topic", None, files, 3, {})
    assert tables.fresh_marks()["topic"] == Mark(3, 1, 0, checked=0)
    assert tables.commit("topic", schema, write(tables, schema, 4, {"id": 1}), 4, {})
    assert (tables.committed("topic", 4), tables.left_out("topic", 4), tables.row_count("topic")) == (True, False, 1)


def test_a_window_that_is_committed_is_not_left_out(tables: TopicTables) -> None:
    schema = schema_of(id=pa.int32())
    assert tables.commit("topic", schema, write(tables, schema, 3, {"id": 1}), 3, {})
    successor = TopicTables(tables.location, "shop")
    assert not successor.leave_out("topic", 3)
    assert (successor.committed("topic", 3), successor.row_count("topic")) == (True, 1)
    assert successor.leave_out("nowhere", 3), "nobody can commit to it"


def test_a_time_without_zone_can_be_added(tables: TopicTables) -> None:
    """Delta knows such times only in tables that say so (`time.precision.mode=connect`)."""
    before, after = schema_of(id=pa.int32()), schema_of(id=pa.int32(), at=pa.timestamp("us"))
    tables.commit("topic", before, write(tables, before, 1, {"id": 1}), 1, {})
    moment = datetime(2024, 2, 29, 1, 2, 3, 4)  # noqa: DTZ001 - it has no zone
    assert tables.commit("topic", after, write(tables, after, 2, {"id": 2, "at": moment}), 2, {})
    found = DeltaTable(tables.location.uri("topic")).to_pyarrow_table()["value"].to_pylist()
    assert sorted((row["after"]["id"], row["after"]["at"]) for row in found) == [(1, None), (2, moment)]


def test_of_two_writers_of_a_window_one_wins(tables: TopicTables) -> None:
    schema = schema_of(id=pa.int32())
    tables.ensure("topic", schema)
    other = TopicTables(tables.location, "shop")
    other.ensure("topic", schema)
    assert tables.commit("topic", schema, write(tables, schema, 1, {"id": 1}), 1, {})
    assert not other.commit("topic", None, write(other, schema, 1, {"id": 1}), 1, {})
    assert tables.row_count("topic") == 1


def test_a_commit_that_others_came_before_is_repeated(tables: TopicTables, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, behind, others = schema_of(id=pa.int32()), tables._behind, iter(range(2))
    tables.ensure("topic", schema)

    def behind_others(handle: DeltaTable, directory: str, *rest: Any) -> Mark:
        for number in others:
            properties = {"delta.targetFileSize": f"{number + 1}mb"}
            DeltaTable(tables.location.uri(directory)).alter.set_table_properties(properties)
            break
        return behind(handle, directory, *rest)

    monkeypatch.setattr(tables, "_behind", behind_others)
    assert tables.commit("topic", schema, write(tables, schema, 1, {"id": 1}), 1, {})
    other = TopicTables(tables.location, "shop")
    assert (other.reached("topic"), other.row_count("topic"), tables.fresh_marks()["topic"].rows) == (1, 1, 1)
    others = iter(range(10))
    with pytest.raises(LakeConflictError, match="5 times in a row"):
        tables.commit("topic", schema, write(tables, schema, 2, {"id": 2}), 2, {})
    assert (other.reached("topic"), tables.fresh_marks()["topic"].window) == (1, 1), "nothing is taken for committed"


def test_a_table_that_cannot_be_written_as_it_is_says_why_and_names_no_other_writer(tables: TopicTables) -> None:
    """Another program has given it a feature that the store's client does not know."""
    schema = schema_of(id=pa.int32())
    tables.ensure("topic", schema)
    log = Path(tables.location.path("topic")) / "_delta_log"
    features = {"readerFeatures": [], "writerFeatures": ["rowTracking", "domainMetadata"]}
    actions = [
        {"commitInfo": {"timestamp": 1}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | features},
    ]
    (log / f"{1:020d}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    with pytest.raises(LakeError, match="RowTracking") as error:
        tables.commit("topic", schema, write(tables, schema, 1, {"id": 1}), 1, {})
    assert not error.value.retryable


def test_files_carry_statistics_and_operations(tables: TopicTables) -> None:
    schema = schema_of(id=pa.int32())
    [file] = write(tables, schema, 3, {"id": 1}, {"id": 2}, None)
    assert (file.rows, file.least, file.greatest) == (3, "0003/0000", "0003/0002")
    assert file.operations == {"c": 2, "tombstone": 1}
    tables.commit("topic", schema, [file], 3, {})
    [action] = pa.table(DeltaTable(tables.location.uri("topic")).get_add_actions(flatten=True)).to_pylist()
    assert (action["min.position"], action["max.position"], action["num_records"]) == ("0003/0000", "0003/0002", 3)


def test_a_writer_without_rows_leaves_no_file(tables: TopicTables, tmp_path: Path) -> None:
    schema = schema_of(id=pa.int32())
    assert write(tables, schema, 1) == []
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_failing_task_describes_no_file(tables: TopicTables) -> None:
    schema = schema_of(id=pa.int32())
    writer = TopicWriter(tables.location, "topic", schema, 1)

    def fail() -> Iterator[pa.RecordBatch]:
        yield batch_of(schema, 1, {"id": 1})
        raise RuntimeError

    with pytest.raises(RuntimeError), writer:
        writer.write(fail())
    assert writer.files == []


def test_added_columns_become_nullable_fields_of_the_same_table(tables: TopicTables) -> None:
    first, second = schema_of(id=pa.int32()), schema_of(id=pa.int32(), note=pa.string())
    tables.commit("topic", first, write(tables, first, 1, {"id": 1}), 1, {})
    assert tables.directory_for("topic", second) == "topic"
    tables.commit("topic", second, write(tables, second, 2, {"id": 2, "note": "n"}), 2, {})
    handle = DeltaTable(tables.location.uri("topic"))
    rows = sorted(handle.to_pyarrow_table().to_pylist(), key=lambda row: row["position"])
    assert [row["value"]["after"] for row in rows] == [{"id": 1, "note": None}, {"id": 2, "note": "n"}]
    assert tables.directory_for("topic", first) == "topic"


def test_another_type_opens_a_generation_and_each_structure_keeps_its_own(tables: TopicTables) -> None:
    first, second = schema_of(id=pa.int32()), schema_of(id=pa.int64())
    tables.ensure("topic", first)
    assert tables.directory_for("topic", second) == "topic@2"
    tables.ensure("topic@2", second)
    assert tables.generations("topic") == ["topic", "topic@2"]
    assert tables.directory_for("topic", first) == "topic"
    assert tables.directory_for("topic", second) == "topic@2"


def test_a_broken_table_is_a_lake_error(tables: TopicTables, tmp_path: Path) -> None:
    tables.ensure("topic", schema_of(id=pa.int32()))
    [log] = (tmp_path / "topic" / "_delta_log").glob("*.json")
    log.write_text("{broken")
    with pytest.raises(LakeError, match="topic"):
        TopicTables(tables.location, "shop").open("topic")


KINDS = st.sampled_from([pa.int32(), pa.int64(), pa.string(), pa.bool_()])
ROWS = st.dictionaries(st.sampled_from("abcdef"), KINDS, min_size=1)


@given(ROWS, ROWS)
def test_structures_are_compatible_exactly_if_common_fields_agree(
    old: dict[str, pa.DataType], new: dict[str, pa.DataType]
) -> None:
    agree = all(old[name] == new[name] for name in old.keys() & new.keys())
    assert is_compatible(lake_schema(schema_of(**old)), schema_of(**new)) == agree
    missing = fields_to_add(lake_schema(schema_of(**old)), schema_of(**new))
    assert bool(missing) == bool(new.keys() - old.keys())


def column(name: str, kind: pa.DataType, meaning: str = "", **metadata: str) -> pa.Schema:
    """A topic with one column."""
    told = {"connect.type": "x"} | ({"connect.name": meaning} if meaning else {}) | metadata
    row = pa.struct([pa.field(name, kind, metadata=told)])
    return pa.schema([pa.field("position", pa.string()), pa.field("value", pa.struct([pa.field("after", row)]))])


def test_the_same_type_with_another_meaning_opens_a_generation() -> None:
    millis = column("at", pa.int64(), "io.debezium.time.Timestamp")
    assert is_compatible(millis, column("at", pa.int64(), "io.debezium.time.Timestamp", optional="false"))
    assert not is_compatible(millis, column("at", pa.int64(), "io.debezium.time.NanoTimestamp"))
    assert not is_compatible(millis, column("at", pa.int64()))
    assert is_compatible(
        millis, pa.schema([pa.field("value", pa.struct([pa.field("after", pa.struct({"at": pa.int64()}))]))])
    )
    assert not is_compatible(millis, column("AT", pa.int64(), "io.debezium.time.Timestamp"))


def test_digits_and_base64_do_not_share_a_column() -> None:
    columns = [Column("id", "int", 1), Column("raw", "varbinary", 2, length=10)]
    modes: tuple[BinaryMode, ...] = ("hex", "base64", "base64-url-safe", "bytes")
    found = [plan_of("t", columns, settings=EventSettings("shop", binary_mode=mode)).topic_schema for mode in modes]
    for old, new in itertools.product(found, found):
        assert is_compatible(lake_schema(old), new) == (old is new)
    digits = column("raw", pa.string(), **{"lake.form": "hex"})
    assert not is_compatible(column("raw", pa.string()), digits), "a plain text"
    undescribed = pa.schema([pa.field("value", pa.struct({"after": pa.struct({"raw": pa.string()})}))])
    assert is_compatible(undescribed, digits), "as another program has written it"


def test_fields_are_added_beside_fields_whose_metadata_changed(tables: TopicTables) -> None:
    first, second = schema_of(id=pa.int32()), schema_of(id=pa.int32(), note=pa.string())
    tables.ensure("topic", first)
    after = second.field("value").type.field("after").type
    changed = pa.struct([after.field(0).with_metadata({"connect.type": "y"}), after.field(1)])
    value = pa.struct([pa.field("before", changed), pa.field("after", changed), pa.field("op", pa.string())])
    handle = tables.ensure("topic", second.set(1, pa.field("value", value)))
    found = pa.schema(handle.schema().to_arrow()).field("value").type.field("after").type
    assert [field.name for field in found] == ["id", "note"]


def test_lake_declares_nested_fields_nullable_and_keeps_their_metadata() -> None:
    strict = pa.schema([pa.field("value", pa.struct([pa.field("id", pa.int32(), False, {"connect.type": "int32"})]))])
    field = lake_schema(strict).field("value").type.field("id")
    assert field.nullable
    assert field.metadata == {b"connect.type": b"int32"}
