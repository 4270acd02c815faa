"""Sinks that count and fail, and what the Delta logs say of the same appends."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from cdc_assets.lake.sink import Append, commit

TEAM = {"acme.team": "sales"}
_RECORDS = ("__windows", "__batches", "__signals", "__published", "__mirrors")
"""Ends of the names of the library's own records, which no sink writes."""

Failure = Callable[[Append], None]


def well(append: Append) -> None:
    """Does not fail."""
    del append


class CountingSink:
    """Counts, and says in each commit whose it is.

    Args:
        before: called before each commit.
        behind: called after each commit.
    """

    def __init__(self, before: Failure = well, behind: Failure = well) -> None:
        self.before, self.behind, self._lock = before, behind, Lock()
        self.calls, self.landed = Counter[str](), Counter[str]()

    def clear(self) -> None:
        """Forget what was counted."""
        self.calls.clear()
        self.landed.clear()

    def write(self, append: Append) -> bool:
        """As a sink does."""
        self.called(append)
        return self.returns(append, landed=commit(append.with_metadata(TEAM)))

    def called(self, append: Append) -> None:
        """Count a call of a `write`."""
        with self._lock:
            self.calls[append.directory] += 1
            self.before(append)

    def returns(self, append: Append, *, landed: bool) -> bool:
        """Count what it returns."""
        with self._lock:
            self.landed[append.directory] += landed
            self.behind(append)
        return landed


def appends_in_logs(lake: Path, application: str = "shop") -> Counter[str]:
    """Commits with new rows of a capture, by directory; each says whose it is."""
    found = Counter[str]()
    for log in sorted(lake.glob("*/_delta_log/*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        adds = [action["add"] for action in actions if "add" in action and action["add"]["dataChange"]]
        writers = {action["txn"]["appId"] for action in actions if "txn" in action}
        directory = log.parent.parent.name
        if adds and application in writers and not directory.endswith((*_RECORDS, ".__current", ".__history")):
            [info] = [action["commitInfo"] for action in actions if "commitInfo" in action]
            assert info.items() >= TEAM.items(), (directory, info)
            found[directory] += 1
    return found
