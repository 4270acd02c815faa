"""Data frames that Spark's tasks write into a lake: the files of the attempts that count, and no others."""

import json
from pathlib import Path

import pyarrow as pa

from cdc_assets.adapters.spark.lake_source import _REPORT, _Writer
from cdc_assets.config.settings import LakeSettings
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location
from cdc_assets_tests.unit.lake.writing import batch_of, schema_of


def test_file_of_an_attempt_that_was_lost_is_not_reported(tmp_path: Path) -> None:
    location, schema = Location.of(LakeSettings(str(tmp_path))), schema_of(id=pa.int32())
    writer = _Writer(location, "topic/new", schema, 0)
    lost, repeated, empty = (
        writer.write(iter(batches))
        for batches in ([batch_of(schema, 1, {"id": 1})], [batch_of(schema, 1, {"id": 1})], [])
    )
    writer.commit([repeated, empty])
    (reported,) = json.loads(Folder(location, "topic/new").read(_REPORT))
    assert len(list((tmp_path / "topic" / "new").glob("*.parquet"))) == 2
    assert reported["rows"] == 1
    assert reported["path"] == repeated.files[0].path != lost.files[0].path
