"""What retention waits for is told, also if nobody can read what it is."""

from pathlib import Path

from cdc_assets.overview import CaptureOverview, report_of
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.tables import two_new_tables


def test_place_of_the_publisher_that_was_emptied_is_told(tmp_path: Path) -> None:
    server, config, _, _ = two_new_tables(tmp_path, topic_hours=1)
    make_capture(server, config).stream()
    assert not report_of(CaptureOverview(config, server), server.now).advice
    place = tmp_path / "shop.__publisher" / "published.json"
    place.parent.mkdir()
    place.touch()
    (said,) = report_of(CaptureOverview(config, server), server.now).advice
    assert said.startswith("Old events stay in the topics of the lake: ")
    assert "does not say how far topics are published. Next: run cdc-assets publish" in said
