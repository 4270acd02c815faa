"""What IO managers count of their appends."""

import pyarrow as pa
import pytest

from cdc_assets.defs.write_counts import WriteCounts
from cdc_assets.errors import InvariantError
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.sink import Append, Commit


def append_of(number: int, directory: str = "topic", **operations: int) -> Append:
    file = DataFile("f", 1, sum(operations.values()), "", "", number, operations)
    return Append("shop", directory, number, (file,), {}, lambda: pa.schema([]), Commit(lambda _: True))


def test_a_number_counts_once_in_each_table() -> None:
    counts = WriteCounts()
    for landed in (True, False):  # the repeat of a window that failed behind this commit
        counts.add(append_of(1, c=2, u=1), landed=landed)
    counts.add(append_of(1, "topic@2", c=1), landed=True)
    counts.add(append_of(2, d=1), landed=False)  # committed by a run before
    found = counts.of("topic")
    assert (found.commits, found.rows) == (2, {"c": 3, "u": 1, "d": 1})
    assert counts.of("another").commits == 0


def test_what_was_asked_for_stays_as_it_is_while_other_threads_count() -> None:
    counts = WriteCounts()
    counts.add(append_of(1, c=2), landed=True)
    found = counts.of("topic")
    counts.add(append_of(2, u=1), landed=True)
    assert (found.commits, found.rows) == (1, {"c": 2})


def test_a_report_may_say_less_and_never_more() -> None:
    counts = WriteCounts()
    counts.add(append_of(1, c=2), landed=True)
    counts.check("topic", {"c": 2})
    counts.check("topic", {})
    for wrong in ({"c": 3}, {"u": 1}):
        with pytest.raises(InvariantError, match="other rows of topic"):
            counts.check("topic", wrong)
