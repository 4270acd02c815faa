"""How parts of a report read."""

import pytest

from cdc_assets.cli.report import completeness_of
from cdc_assets.core.lsn import Lsn
from cdc_assets.overview.formatting import describe_headroom


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (-0.1, "may be removed at any moment"),
        (0.0, "may be removed at any moment"),
        (0.05, "are kept for 3 min 0 s at least"),
        (71.9, "are kept for 2 d 23 h at least"),
    ],
)
def test_time_that_is_past_is_not_left(hours: float, words: str) -> None:
    assert describe_headroom(hours).endswith(words)


def test_database_of_which_nothing_streams_is_complete_to_nothing() -> None:
    assert completeness_of("Erp", None, None, 0) == "No table of Erp streams"
    assert completeness_of("Erp", Lsn.from_int(9), 60.0, 1).endswith(", except 1 table, which is not")
