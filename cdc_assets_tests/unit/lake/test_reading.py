"""What files say of their rows, also those that other programs have written."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_assets.lake.location import Location
from cdc_assets.lake.reading import newest_position


def event(number: int) -> str:
    """A position."""
    return f"0000002a:00000000:{number:04x}/r"


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.large_string()], ids=str)
@pytest.mark.parametrize(
    ("positions", "newest"),
    [
        ([event(1), event(3), None, event(2)], event(2)),
        ([event(2), "0", "zzz", "0000002a:00000000:0002"], event(2)),
        ([event(3)], ""),
        ([None], ""),
        ([], ""),
    ],
    ids=["up to the bound", "beside texts of users", "behind it", "without a position", "without a row"],
)
def test_newest_position_is_found_in_texts_of_each_kind(
    tmp_path: Path, kind: pa.DataType, positions: list[str | None], newest: str
) -> None:
    pq.write_table(pa.table({"position": pa.array(positions, kind)}), tmp_path / "rows.parquet", row_group_size=2)
    assert newest_position(Location(str(tmp_path)), "", "rows.parquet", event(2)) == newest


def test_a_user_s_text_is_no_newest_position(tmp_path: Path) -> None:
    pq.write_table(pa.table({"position": [event(2), "zzz"]}), tmp_path / "rows.parquet")
    assert newest_position(Location(str(tmp_path)), "", "rows.parquet", "~") == event(2)


def test_a_file_without_positions_has_no_newest_one(tmp_path: Path) -> None:
    pq.write_table(pa.table({"other": [1]}), tmp_path / "rows.parquet")
    assert newest_position(Location(str(tmp_path)), "", "rows.parquet", "b") == ""
