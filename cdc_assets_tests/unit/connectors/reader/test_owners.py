"""Two captures never write one topic table."""

from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.errors import LakeError
from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.location import Location
from cdc_assets.lake.owners import OWNER
from cdc_assets.lake.system_topics import manifest_directory
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.unit.connectors.reader.trial import Trial

SCHEMA = pa.schema([pa.field("position", pa.string()), pa.field("window_id", pa.int64())])


def committed(lake: Path, capture: str, topic: str, *, marked: bool = True) -> None:
    """A table with one row, as a capture makes it; one of another program is not marked."""
    tables = TopicTables(Location(str(lake)), capture)
    directory = tables.prepare(topic, SCHEMA) if marked else topic
    if not marked:
        tables.ensure(topic, SCHEMA)
    with TopicWriter(tables.location, directory, SCHEMA, 1, "a") as writer:
        writer.write(pa.Table.from_pylist([{"position": "1", "window_id": 1}], SCHEMA).to_batches())
    assert tables.commit(directory, SCHEMA, writer.files, 1, {})


def test_a_table_of_another_capture_is_refused_by_name(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    committed(trial.lake, "erp", "erp.db.orders")
    trial.write("a.json", {"topic": "erp.db.orders", "value": {"id": 1}})
    for _ in range(2):
        with pytest.raises(LakeError, match=r"erp\.db\.orders belongs to the capture with topic\.prefix erp; shop"):
            trial.run()
    table = trial.tables().open("erp.db.orders")
    assert table is not None
    assert table.to_pyarrow_table().column_names == SCHEMA.names
    committed(trial.lake, "erp", "erp.db.lines")  # which goes on


def test_the_other_way_round(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.write("a.json", {"topic": "erp.db.orders", "value": {"id": 1}})
    trial.run()
    with pytest.raises(LakeError, match=r"topic\.prefix shop; erp would write"):
        TopicTables(Location(str(trial.lake)), "erp").prepare("erp.db.orders", SCHEMA)


def test_rows_that_a_user_has_appended_make_nobody_the_owner(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    committed(trial.lake, "dagster:run:step:result", "t", marked=False)
    trial.write("a.json", {"topic": "t", "value": {"id": 1}})
    trial.run()
    assert [event["value"] for event in trial.held("t") if event["value"]] == [{"id": 1}]


def test_a_table_knows_its_capture_from_the_beginning(tmp_path: Path) -> None:
    """Before its first commit, so that of two captures that begin at once one is refused."""
    TopicTables(Location(str(tmp_path)), "erp").prepare("t", SCHEMA)
    with pytest.raises(LakeError, match=r"topic\.prefix erp"):
        TopicTables(Location(str(tmp_path)), "shop").prepare("t", SCHEMA)
    table = TopicTables(Location(str(tmp_path)), "").open("t")
    assert table is not None
    assert table.metadata().configuration[OWNER] == "erp"


def test_a_reader_has_not_the_prefix_of_a_capture_of_another_kind(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    TopicTables(Location(str(trial.lake)), "shop").ensure(manifest_directory("shop"), SCHEMA)
    trial.write("a.json", {"topic": "t", "value": {"id": 1}})
    with pytest.raises(LakeError, match="another capture has the topic"):
        trial.run()
