"""What files say of their rows, also those that other programs have written."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_assets.lake.location import Location
from cdc_assets.lake.reading import newest_position


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.large_string()], ids=str)
@pytest.mark.parametrize(
    ("positions", "newest"),
    [(["a", "c", None, "b"], "b"), (["c"], ""), ([None], ""), ([], "")],
    ids=["up to the bound", "behind it", "without a position", "without a row"],
)
def test_newest_position_is_found_in_texts_of_each_kind(
    tmp_path: Path, kind: pa.DataType, positions: list[str | None], newest: str
) -> None:
    pq.write_table(pa.table({"position": pa.array(positions, kind)}), tmp_path / "rows.parquet", row_group_size=2)
    assert newest_position(Location(str(tmp_path)), "", "rows.parquet", "b") == newest


def test_a_file_without_positions_has_no_newest_one(tmp_path: Path) -> None:
    pq.write_table(pa.table({"other": [1]}), tmp_path / "rows.parquet")
    assert newest_position(Location(str(tmp_path)), "", "rows.parquet", "b") == ""
