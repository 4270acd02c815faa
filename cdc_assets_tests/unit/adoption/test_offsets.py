"""Offsets of a connector in every form in which people have them."""

import base64
import json
from pathlib import Path

import pytest

from cdc_assets.adoption.java_map import parse_java_map
from cdc_assets.adoption.offsets import ConnectorOffset, read_offsets
from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import InvalidValueError

FILE = base64.b64decode(
    "rO0ABXNyABFqYXZhLnV0aWwuSGFzaE1hcAUH2sHDFmDRAwACRgAKbG9hZEZhY3RvckkACXRocmVzaG9sZHhwP0AAAAAAAAx3CAAAABAAAAABdXIA"
    "AltCrPMX+AYIVOACAAB4cAAAADBbImVuZ2luZSIseyJzZXJ2ZXIiOiJzaG9wIiwiZGF0YWJhc2UiOiJUZXN0REIifV11cQB+AAIAAABheyJldmVu"
    "dF9zZXJpYWxfbm8iOjEsImNvbW1pdF9sc24iOiIwMDAwMDAyYzowMDAwMDBiMDowMDA0IiwiY2hhbmdlX2xzbiI6IjAwMDAwMDJjOjAwMDAwMGIw"
    "OjAwMDIifXg="
)
"""What Debezium's engine 3.6.3 wrote to `offset.storage.file.filename`."""

COMMIT, CHANGE = Lsn.parse("0000002c:000000b0:0004"), Lsn.parse("0000002c:000000b0:0002")
PARTITION = {"server": "shop", "database": "TestDB"}
OFFSET = {"event_serial_no": 1, "commit_lsn": str(COMMIT), "change_lsn": str(CHANGE)}
OLDER = {"event_serial_no": 1, "commit_lsn": str(CHANGE), "change_lsn": str(CHANGE)}
FORMS = {
    "file": FILE,
    "answer": json.dumps({"offsets": [{"partition": PARTITION, "offset": OFFSET}]}).encode(),
    "topic": "\n".join(
        f'["shop",{json.dumps(PARTITION)}]\t{json.dumps(offset)}' for offset in (OLDER, None, OFFSET)
    ).encode(),
    "by hand": f"{json.dumps(PARTITION)} → {json.dumps(OFFSET)}".encode(),
    "pairs": json.dumps([[PARTITION, OFFSET]]).encode(),
}


def offsets(folder: Path, content: bytes, name: str = "") -> dict[str, ConnectorOffset]:
    path = folder / "offsets"
    path.write_bytes(content)
    return read_offsets(path, "shop", name)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_the_same(tmp_path: Path, form: str) -> None:
    assert offsets(tmp_path, FORMS[form]) == {"TestDB": ConnectorOffset(COMMIT, CHANGE, 1)}


@pytest.mark.parametrize("size", [0, 5, 60, len(FILE) - 1])
def test_a_file_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(InvalidValueError, match="copy the whole file"):
        parse_java_map(FILE[:size] or FILE[:4])


def test_a_deleted_offset_is_none(tmp_path: Path) -> None:
    text = f"{json.dumps(PARTITION)}\t{json.dumps(OFFSET)}\n{json.dumps(PARTITION)}\tnull\n"
    assert offsets(tmp_path, text.encode()) == {}


@pytest.mark.parametrize(
    ("more", "whole"),
    [
        ({"change_lsn": "NULL", "event_serial_no": 0}, True),
        ({"snapshot": "INITIAL", "snapshot_completed": True}, True),
        ({"snapshot": True, "snapshot_completed": True, "change_lsn": None}, True),
        ({"snapshot": "INCREMENTAL"}, False),
    ],
)
def test_what_was_delivered(tmp_path: Path, more: dict[str, object], whole: bool) -> None:
    [offset] = offsets(tmp_path, json.dumps([PARTITION, OFFSET | more]).encode()).values()
    assert (offset.commit, offset.change) == (COMMIT, None if whole else CHANGE)


def test_what_a_connector_counts_and_has_not_read(tmp_path: Path) -> None:
    more = {
        "transaction_id": str(COMMIT),
        "transaction_data_collection_order_TestDB.dbo.orders": 3,
        "incremental_snapshot_collections": '[{"incremental_snapshot_collections_id":"[TestDB].[dbo].[orders]"}]',
    }
    [offset] = offsets(tmp_path, json.dumps([PARTITION, OFFSET | more]).encode()).values()
    assert offset.transaction
    assert offset.counts == {"TestDB.dbo.orders": 3}
    assert offset.unread == ("[TestDB].[dbo].[orders]",)


@pytest.mark.parametrize(
    "more",
    [
        {"transaction_id": str(COMMIT)},
        {"transaction_id": str(CHANGE), "transaction_data_collection_order_TestDB.dbo.orders": 3},
    ],
    ids=["BEGIN", "END of the transaction before"],
)
def test_an_event_whose_boundary_was_delivered_was_not(tmp_path: Path, more: dict[str, object]) -> None:
    [offset] = offsets(tmp_path, json.dumps([PARTITION, OFFSET | more]).encode()).values()
    assert offset == ConnectorOffset(Lsn.from_int(int(COMMIT) - 1))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([PARTITION, OFFSET | {"snapshot": "BLOCKING", "snapshot_completed": False}], "let the connector finish"),
        ([PARTITION, {"event_serial_no": 1}], "copy the connector's whole offset"),
        ([PARTITION | {"server": "other"}, OFFSET], "it holds those of other"),
        ([["one", PARTITION], OFFSET, ["two", PARTITION], OFFSET], "one of one, two"),
        ("text", "it holds those of nothing"),
        ([PARTITION, OFFSET | {"commit_lsn": None}], "what the connector writes"),
        ([PARTITION, OFFSET | {"event_serial_no": "x"}], "what the connector writes"),
        ([PARTITION, OFFSET | {"incremental_snapshot_collections": "[1]"}], "what the connector writes"),
    ],
)
def test_offsets_that_cannot_be_used(tmp_path: Path, value: object, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        offsets(tmp_path, json.dumps(value).encode())


def test_of_two_connectors_the_named_one_counts(tmp_path: Path) -> None:
    text = json.dumps([["one", PARTITION], OLDER, ["two", PARTITION], OFFSET]).encode()
    assert offsets(tmp_path, text, "two")["TestDB"].commit == COMMIT
