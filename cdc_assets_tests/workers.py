"""Which files the workers of pytest-xdist play."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).parent.parent


class FilesAndSpark(LoadFileScheduling):
    """Each file is played by one worker, and all files with Spark by the same one.

    A JVM, and the first time that Spark does each thing in it, cost a worker some twenty seconds of processor time.
    """

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """What comes before the first `::` tells which tests belong together."""
        super().add_node_collection(
            node, [f"spark::{name}" if _has_spark(name.partition("::")[0]) else name for name in collection]
        )


@cache
def _has_spark(file: str) -> bool:
    return "pytest.mark.spark" in (ROOT / file).read_text(encoding="utf-8")
