"""Records of a connector's schema history count when an offset has reached them."""

import json
from pathlib import Path
from typing import Any

from cdc_assets.connectors.engine.history import History
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables


def record(pos: int, file: str = "bin.000009") -> str:
    return json.dumps({"position": {"file": file, "pos": pos, "server_id": 1}, "ts_ms": 1, "ddl": f"alter {pos}"})


def at(pos: int, file: str = "bin.000009") -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [({"server": "shop"}, {"file": file, "pos": pos})]


def test_records_ahead_of_the_offset_are_held_back(tmp_path: Path) -> None:
    history = History(TopicTables(Location(str(tmp_path)), "shop"), "shop")
    assert history.reached([record(100), record(300), record(4, "bin.000010")], at(200)) == [record(100)]
    assert history.reached([], at(299)) == []
    assert history.reached([], at(300)) == [record(300)]
    assert history.reached([record(300)], at(4, "bin.000010")) == [record(4, "bin.000010")]


def test_records_without_a_place_that_can_be_compared_count_at_once(tmp_path: Path) -> None:
    history = History(TopicTables(Location(str(tmp_path)), "shop"), "shop")
    other = json.dumps({"position": {"commit_lsn": "1"}, "ddl": ""})
    assert history.reached([other], [({}, {"commit_lsn": "0"})]) == [other]


def test_records_with_gtids_are_compared_by_the_connector_alone(tmp_path: Path) -> None:
    history = History(TopicTables(Location(str(tmp_path)), "shop"), "shop")
    position = {"file": "bin.000900", "pos": 9, "gtids": "a:1-9"}
    made = json.dumps({"position": position, "ddl": "alter"})
    assert history.reached([made], at(200)) == [made]
