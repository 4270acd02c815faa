"""What other programs have put into the capture's topics a second time, or may have, and was not undone yet."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from cdc_assets.core.one_by_one import OneByOne
from cdc_assets.lake.foreign import OR_EARLIER, ForeignCommit, scan_foreign
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.positions import doubled_rows
from cdc_assets.lake.topics import TopicTables

_THREADS = 8


def rewritten(tables: TopicTables, marks: Mapping[str, Mark], *, whole: bool) -> list[ForeignCommit]:
    """Commits that put rows in twice since the logs were read last, or of which that is unknown by now.

    Args:
        whole: whether positions are read where the log is gone, so that it is known.

    Raises:
        LakeError: the lake cannot be read.
    """

    def of(name: str) -> list[ForeignCommit]:
        seen = scan_foreign(tables, name, marks[name].read_to + 1)
        found = [commit for commit in seen.commits if commit.kind == "doubled"]
        if seen.is_whole or found:
            return found
        if not whole:
            return [ForeignCommit(name, seen.newest, "unclear", 0, OR_EARLIER)]
        rows = doubled_rows(tables, name, OneByOne("reading the lake"))
        return [ForeignCommit(name, seen.newest, "doubled", rows, OR_EARLIER)] if rows else []

    with ThreadPoolExecutor(_THREADS) as pool:
        return [commit for found in pool.map(of, sorted(marks)) for commit in found]
