"""What other programs have put into the capture's topics a second time, and nobody has undone yet."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from cdc_assets.core.one_by_one import OneByOne
from cdc_assets.lake.foreign import ForeignCommit, look
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.positions import doubled_rows
from cdc_assets.lake.topics import TopicTables

_THREADS = 8


def doubled(tables: TopicTables, marks: Mapping[str, Mark], *, whole: bool) -> list[ForeignCommit]:
    """Commits that put rows in twice since the logs were read last.

    Args:
        whole: whether positions are read where the log is gone.

    Raises:
        LakeError: the lake cannot be read.
    """

    def of(name: str) -> list[ForeignCommit]:
        seen = look(tables, name, marks[name].read_to + 1)
        found = [commit for commit in seen.commits if commit.kind == "doubled"]
        if whole and not seen.is_whole and not found and (rows := doubled_rows(tables, name, OneByOne())):
            found.append(ForeignCommit(name, seen.newest, "doubled", rows))
        return found

    with ThreadPoolExecutor(_THREADS) as pool:
        return [commit for found in pool.map(of, sorted(marks)) for commit in found]
