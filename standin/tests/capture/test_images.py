"""What lands in a change table."""

import contextlib

import pytest

from tests.capture.harness import Server, Session

ALL = b"\x07"


def test_insert_update_delete_images_masks_and_command_ids(session: Session) -> None:
    table = session.make("t", "id int;name varchar(20);n int")
    session.enable()
    with session.transaction():
        session.run(f"INSERT INTO {table.sqlite} VALUES (1, 'a', 10), (2, 'b', 20)")
        session.run(f"UPDATE {table.sqlite} SET c3 = c3 + 1 WHERE c1 = 2")
        session.run(f"DELETE FROM {table.sqlite} WHERE c1 = 1")
    assert session.changes() == [
        (2, ALL, 1, "a", 10, 1),
        (2, ALL, 2, "b", 20, 1),
        (3, b"\x04", 2, "b", 20, 2),
        (4, b"\x04", 2, "b", 21, 2),
        (1, ALL, 1, "a", 10, 3),
    ]


def test_one_lsn_per_transaction_and_one_seqval_per_change(session: Session) -> None:
    table = session.make("t", "id int;n int")
    session.enable()
    with session.transaction():
        session.run(f"INSERT INTO {table.sqlite} VALUES (1, 1), (2, 2)")
        session.run(f"UPDATE {table.sqlite} SET c2 = 9 WHERE c1 = 1")
    rows = session.cdc("dbo_t_CT")
    assert len({row[0] for row in rows}) == 1
    seqvals = [row[2] for row in rows]
    assert seqvals == sorted(seqvals)
    assert len(set(seqvals)) == 3
    assert seqvals[2] == seqvals[3]
    assert all(row[2] < row[0] for row in rows)
    mapped = session.cdc("lsn_time_mapping")
    assert [row[0] for row in mapped if row[3] != b"\0"] == [rows[0][0]]


@pytest.mark.parametrize("column", ["id", "code"])
def test_an_update_of_a_key_column_is_delete_and_insert_with_one_seqval(session: Session, column: str) -> None:
    table = session.make("t", "id int;code int;n int", unique=("code",))
    session.enable()
    session.execute(f"INSERT INTO {table.sqlite} VALUES (1, 7, 10)")
    place = {"id": "c1", "code": "c2"}[column]
    session.execute(f"UPDATE {table.sqlite} SET {place} = 99")
    rows = session.cdc("dbo_t_CT")[1:]
    assert [row[3] for row in rows] == [1, 2]
    assert rows[0][2] == rows[1][2]
    assert [row[4] for row in rows] == [ALL, ALL]


def test_an_update_that_changes_nothing_leaves_no_trace(session: Session) -> None:
    table = session.make("t", "id int;n int;other int")
    session.enable(captured_column_list="id, [n]")
    session.execute(f"INSERT INTO {table.sqlite} VALUES (1, 1, 1)")
    session.execute(f"UPDATE {table.sqlite} SET c2 = c2")
    session.execute(f"UPDATE {table.sqlite} SET c3 = 2")
    assert [row[0] for row in session.changes()] == [2]
    assert len([row for row in session.cdc("lsn_time_mapping") if row[3] != b"\0"]) == 1


def test_large_values_are_missing_unless_they_changed(session: Session) -> None:
    table = session.make("t", "id int;n int;big varchar(max);old text;doc xml")
    session.enable()
    session.execute(f"INSERT INTO {table.sqlite} VALUES (1, 1, 'b', 'o', '<d/>')")
    session.execute(f"UPDATE {table.sqlite} SET c2 = 2")
    session.execute(f"UPDATE {table.sqlite} SET c3 = 'B', c4 = 'O', c5 = '<D/>'")
    session.execute(f"DELETE FROM {table.sqlite}")
    assert [(row[0], *row[4:7]) for row in session.changes()] == [
        (2, "b", "o", "<d/>"),
        (3, None, None, None),
        (4, None, None, None),
        (3, "b", None, "<d/>"),
        (4, "B", "O", "<D/>"),
        (1, "B", None, "<D/>"),
    ]


def test_a_change_of_letter_case_alone_is_a_change(session: Session) -> None:
    table = session.make("t", "id int;name varchar(20)")
    session.enable()
    session.execute(f"INSERT INTO {table.sqlite} VALUES (1, 'a')")
    session.execute(f"UPDATE {table.sqlite} SET c2 = 'A'")
    assert [row[0] for row in session.changes()] == [2, 3, 4]


def test_the_mask_of_many_columns_has_the_first_in_the_last_byte(session: Session) -> None:
    names = [f"c{place}" for place in range(1, 60)]
    table = session.make("t", ";".join(["id int", *(f"{name} int" for name in names)]))
    session.enable()
    session.execute(f"INSERT INTO {table.sqlite}(c1, c2, c60) VALUES (1, 1, 1)")
    session.execute(f"UPDATE {table.sqlite} SET c2 = 5, c60 = 6")
    inserted, before, _ = (row[1] for row in session.changes())
    assert inserted == b"\x0f" + b"\xff" * 7
    assert before == b"\x08" + b"\x00" * 6 + b"\x02"


def test_rollback_leaves_nothing(session: Session) -> None:
    table = session.make("t", "id int;n int")
    session.enable()
    with contextlib.suppress(ZeroDivisionError), session.transaction():
        session.run(f"INSERT INTO {table.sqlite} VALUES (1, 1)")
        raise ZeroDivisionError
    before = session.cdc("lsn_time_mapping")
    with session.transaction():
        session.connection.execute("SAVEPOINT s")
        session.run(f"INSERT INTO {table.sqlite} VALUES (2, 2)")
        session.connection.execute("ROLLBACK TO s")
    assert session.changes() == []
    assert session.cdc("lsn_time_mapping") == before


def test_two_instances_see_a_change_with_one_seqval(session: Session) -> None:
    table = session.make("t", "id int;n int")
    session.enable()
    session.enable(capture_instance="second")
    session.execute(f"INSERT INTO {table.sqlite} VALUES (1, 1)")
    first, second = session.cdc("dbo_t_CT"), session.cdc("second_CT")
    assert first == second
    assert len(first) == 1


def test_databases_have_logs_of_their_own(server: Server) -> None:
    session, other = server.session(), server.session()
    other.database = other.procedure_database = "other"
    here, there = session.make("t", "id int"), other.make("t", "id int", database="other")
    session.enable()
    other.enable()
    with session.transaction():
        session.run(f"INSERT INTO {here.sqlite} VALUES (1)")
        session.run(f"INSERT INTO {there.sqlite} VALUES (2)")
    assert [row[2] for row in session.changes()] == [1]
    assert [row[2] for row in other.changes()] == [2]


def test_a_transaction_of_more_than_65533_changes_carries_into_the_block(session: Session) -> None:
    table = session.make("t", "id int")
    session.enable()
    session.execute(
        f"INSERT INTO {table.sqlite} WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 70000) SELECT i FROM n"
    )
    seqvals = [row[2] for row in session.cdc("dbo_t_CT")]
    assert len(set(seqvals)) == 70000
    assert seqvals == sorted(seqvals)
    session.execute(f"INSERT INTO {table.sqlite} VALUES (0)")
    last = session.cdc("dbo_t_CT")[-1]
    assert seqvals[-1] < session.cdc("dbo_t_CT")[0][0] < last[2] < last[0]
