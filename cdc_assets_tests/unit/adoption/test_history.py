"""A connector's schema history in every form in which people have it."""

import json
from pathlib import Path

import pytest

from cdc_assets.adoption.history import read_history
from cdc_assets.adoption.offsets import read_offsets
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import InvalidValueError

PARTITION = {"server": "shop", "database": "TestDB"}
OFFSET = {"event_serial_no": 1, "commit_lsn": "0000002c:000000b0:0004", "change_lsn": "0000002c:000000b0:0002"}
TABLES = ("orders", "lines")
RECORDS = [
    {
        "source": PARTITION,
        "position": {"snapshot_completed": False, "commit_lsn": "NULL"},
        "databaseName": "TestDB",
        "tableChanges": [
            {"type": "CREATE", "id": f'"TestDB"."dbo"."{table}"', "table": {"columns": [{"name": "id {"}]}}
        ],
    }
    for table in TABLES
]
FORMS = {
    "a file": "".join(json.dumps(record) + "\n" for record in RECORDS),
    "a topic's values": "\n".join(json.dumps(record, indent=2) for record in RECORDS),
    "keys and values of a topic": "\n".join(f"null\t{json.dumps(record, indent=2)}" for record in RECORDS),
    "nothing": "\n",
}


def known(folder: Path, text: str) -> dict[TableId, tuple[str, ...]]:
    file = folder / "history.txt"
    file.write_text(text)
    place = folder / "offsets.json"
    place.write_text(json.dumps([[PARTITION, OFFSET]]))
    return read_history(file, read_offsets(place, "shop", ""))


@pytest.mark.parametrize("form", FORMS)
def test_tables_are_read_from_each_form(tmp_path: Path, form: str) -> None:
    tables = TABLES if form != "nothing" else ()
    assert known(tmp_path, FORMS[form]) == {TableId("TestDB", "dbo", table): ("id {",) for table in tables}


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE orders",
        FORMS["a topic's values"][:-9],
        FORMS["a file"][:-9],
        FORMS["a file"].replace('"id"', '"name"'),
        '{"source": "TestDB"}',
    ],
)
def test_something_else_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidValueError, match="schema history"):
        known(tmp_path, text)
