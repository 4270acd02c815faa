"""Change functions and LSN functions."""

from collections.abc import Iterable

import pytest

import mssql_standin.capture.functions  # noqa: F401 - defines the scalar functions
from mssql_standin.capture.functions import function_relation
from mssql_standin.contract import Typed
from mssql_standin.errors import SqlError
from mssql_standin.sql.literals import constant
from mssql_standin.sql.registry import Call, find
from mssql_standin.sqltypes import LSN_TYPE, NVARCHAR_MAX, Value
from tests.capture.harness import Session


def scalar(session: Session, name: str, *values: Value) -> Value:
    found = find(f"sys.{name}")
    assert found is not None
    call = Call((), LSN_TYPE)
    if None in values:
        return None
    return found.implementation(session, call, *values) if found.needs_context else found.implementation(call, *values)


def rows(session: Session, function: str, low: Value, high: Value, option: Value = "all") -> list[tuple[Value, ...]]:
    arguments: list[Typed] = [constant(low, LSN_TYPE), constant(high, LSN_TYPE), constant(option, NVARCHAR_MAX)]
    relation = function_relation(session, "shop", ("cdc", function), arguments)  # type: ignore[arg-type]
    assert relation is not None
    found = session.connection.execute(f"SELECT * FROM {relation.sql}").fetchall()
    assert all(len(row) == len(relation.columns) for row in found)
    return found


def bounds(session: Session) -> tuple[Value, Value]:
    return scalar(session, "fn_cdc_get_min_lsn", "dbo_t"), scalar(session, "fn_cdc_get_max_lsn")


@pytest.fixture
def filled(session: Session) -> Session:
    table = session.make("t", "id int;v varchar(20)")
    session.execute(f"INSERT INTO {table.sqlite} VALUES (4, 'was'), (5, 'old'), (6, 'dead'), (7, 'going')")
    session.enable(supports_net_changes=1)
    run(
        session,
        [
            f"INSERT INTO {table.sqlite} VALUES (1, 'a')",
            f"INSERT INTO {table.sqlite} VALUES (2, 'a')",
            f"UPDATE {table.sqlite} SET c2 = 'b' WHERE c1 = 2",
            f"INSERT INTO {table.sqlite} VALUES (3, 'a')",
            f"DELETE FROM {table.sqlite} WHERE c1 = 3",
            f"UPDATE {table.sqlite} SET c2 = 'new' WHERE c1 = 4",
            f"DELETE FROM {table.sqlite} WHERE c1 = 5",
            f"DELETE FROM {table.sqlite} WHERE c1 = 6",
            f"INSERT INTO {table.sqlite} VALUES (6, 'reborn')",
            f"UPDATE {table.sqlite} SET c2 = 'doomed' WHERE c1 = 7",
            f"DELETE FROM {table.sqlite} WHERE c1 = 7",
            f"INSERT INTO {table.sqlite} VALUES (8, 'a')",
            f"DELETE FROM {table.sqlite} WHERE c1 = 8",
            f"INSERT INTO {table.sqlite} VALUES (8, 'again')",
        ],
    )
    with session.transaction():
        session.run(f"INSERT INTO {table.sqlite} VALUES (20, 'x')")
        session.run(f"DELETE FROM {table.sqlite} WHERE c1 = 20")
    return session


def run(session: Session, statements: Iterable[str]) -> None:
    for statement in statements:
        session.execute(statement)


NET = {1: (2, "a"), 2: (2, "b"), 4: (4, "new"), 5: (1, "old"), 6: (4, "reborn"), 7: (1, "doomed"), 8: (2, "again")}
"""What a real server answered to the statements of `filled` (public measurement)."""


def test_net_changes_collapse_over_the_whole_window(filled: Session) -> None:
    found = rows(filled, "fn_cdc_get_net_changes_dbo_t", *bounds(filled))
    assert {row[3]: (row[1], row[4]) for row in found} == NET
    assert all(row[2] is None for row in found)


def test_net_changes_with_merge_do_not_tell_insert_from_update(filled: Session) -> None:
    found = rows(filled, "fn_cdc_get_net_changes_dbo_t", *bounds(filled), "all with merge")
    assert {row[3]: row[1] for row in found} == {key: 1 if op == 1 else 5 for key, (op, _) in NET.items()}


def test_net_changes_with_mask_mark_the_updated_columns(filled: Session) -> None:
    found = rows(filled, "fn_cdc_get_net_changes_dbo_t", *bounds(filled), "all with mask")
    assert {row[3]: row[2] for row in found if row[1] == 4} == {4: b"\x02", 6: b"\x03"}


def test_all_changes_with_both_filters(filled: Session) -> None:
    low, high = bounds(filled)
    both = rows(filled, "fn_cdc_get_all_changes_dbo_t", low, high, "all update old")
    after = rows(filled, "fn_cdc_get_all_changes_dbo_t", low, high, "all")
    assert [row for row in both if row[2] != 3] == after
    assert sum(1 for row in both if row[2] == 3) == 3


def test_all_changes_have_no_command_id(filled: Session) -> None:
    relation = function_relation(
        filled,
        "shop",
        ("cdc", "fn_cdc_get_all_changes_dbo_t"),
        [constant(None, LSN_TYPE)] * 3,  # type: ignore[arg-type]
    )
    assert relation is not None
    assert [column.name for column in relation.columns] == [
        "__$start_lsn", "__$seqval", "__$operation", "__$update_mask", "id", "v",
    ]  # fmt: skip


@pytest.mark.parametrize("case", ["below", "above", "null", "crossed", "option", "null option"])
def test_a_call_outside_the_valid_range_is_313(filled: Session, case: str) -> None:
    low, high = bounds(filled)
    assert isinstance(low, bytes)
    assert isinstance(high, bytes)
    calls: dict[str, tuple[Value, Value, Value]] = {
        "below": (bytes(10), high, "all"),
        "above": (low, b"\xff" * 10, "all"),
        "null": (None, high, "all"),
        "crossed": (high, low, "all"),
        "option": (low, high, "everything"),
        "null option": (low, high, None),
    }
    with pytest.raises(Exception, match="user-defined function"):
        rows(filled, "fn_cdc_get_all_changes_dbo_t", *calls[case])
    assert filled.failure is not None
    assert filled.failure.number == 313
    assert filled.failure.message == (
        "An insufficient number of arguments were supplied for the procedure or function cdc.fn_cdc_get_all_changes_ ... ."
    )


def test_an_empty_change_table_checks_its_range_too(session: Session) -> None:
    session.make("t", "id int")
    session.enable()
    with pytest.raises(Exception, match="user-defined function"):
        rows(session, "fn_cdc_get_all_changes_dbo_t", bytes(10), bytes(10))


@pytest.mark.parametrize(
    "parts", [("shop", "cdc", "fn_cdc_get_all_changes_gone"), ("cdc", "fn_cdc_get_net_changes_dbo_u")]
)
def test_a_missing_function_is_208_with_the_name_as_written(session: Session, parts: tuple[str, ...]) -> None:
    session.make("u", "id int")
    session.enable("u")
    with pytest.raises(SqlError) as caught:
        function_relation(session, "shop", parts, [])  # type: ignore[arg-type]
    assert caught.value.number == 208
    assert caught.value.message == f"Invalid object name '{'.'.join(parts)}'."


def test_lsn_arithmetic_and_mapping(filled: Session) -> None:
    _, high = bounds(filled)
    assert scalar(filled, "fn_cdc_decrement_lsn", scalar(filled, "fn_cdc_increment_lsn", high)) == high
    when = scalar(filled, "fn_cdc_map_lsn_to_time", high)
    assert isinstance(when, int)
    assert scalar(filled, "fn_cdc_map_time_to_lsn", "largest less than or equal", when) == high
    before = scalar(filled, "fn_cdc_map_time_to_lsn", "largest less than", when)
    assert isinstance(before, bytes)
    assert (
        scalar(
            filled, "fn_cdc_map_time_to_lsn", "smallest greater than", scalar(filled, "fn_cdc_map_lsn_to_time", before)
        )
        == high
    )
    assert scalar(filled, "fn_cdc_map_time_to_lsn", "smallest greater than or equal", when) == high
    assert scalar(filled, "fn_cdc_map_time_to_lsn", "smallest greater than", when) is None


def test_an_unknown_instance_has_a_zero_minimum(filled: Session) -> None:
    assert scalar(filled, "fn_cdc_get_min_lsn", "nobody") == bytes(10)


def test_a_database_without_capture_has_no_maximum(session: Session) -> None:
    with pytest.raises(SqlError, match=r"cdc\.lsn_time_mapping") as caught:
        scalar(session, "fn_cdc_get_max_lsn")
    assert caught.value.number == 208


def test_mask_functions(filled: Session) -> None:
    assert scalar(filled, "fn_cdc_get_column_ordinal", "dbo_t", "V") == 2
    assert scalar(filled, "fn_cdc_has_column_changed", "dbo_t", "v", b"\x02") == 1
    assert scalar(filled, "fn_cdc_has_column_changed", "dbo_t", "id", b"\x02") == 0
    assert scalar(filled, "fn_cdc_is_bit_set", 9, b"\x01\x00") == 1
    assert scalar(filled, "fn_cdc_is_bit_set", 1, b"\x01\x00") == 0
