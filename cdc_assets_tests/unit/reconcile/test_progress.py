"""The record of how far comparisons have come."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from cdc_assets.core.ports import KeyRange
from cdc_assets.lake.location import Location
from cdc_assets.reconcile.progress import Comparisons, Pass, Record

KNOWN = Comparisons(Pass(7, (KeyRange(None, None, None),), lsn="0000002c:00000020:0003"))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    record = Record(Location(str(tmp_path)), "shop")
    assert record.read("shop.t") == Comparisons()
    record.write("shop.t", KNOWN)
    assert record.read("shop.t") == KNOWN


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"newest": null}',
        b'{"newest": {}, "complete": null}',
        json.dumps(asdict(KNOWN)).replace("object_id", "of_a_newer_version").encode(),
    ],
)
def test_a_file_that_cannot_be_read_makes_the_comparison_start_over(tmp_path: Path, content: bytes) -> None:
    record = Record(Location(str(tmp_path)), "shop")
    record.write("shop.t", KNOWN)
    (tmp_path / "shop.__reconciled" / "shop.t.json").write_bytes(content)
    assert record.read("shop.t") == Comparisons()
