"""The lake's store as actors meet it: others take their turns before and behind each commit, and answers are lost.

Every commit of the product, of whatever kind, is one call of Delta's `create_write_transaction`; so is every fault here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from cdc_assets_tests.simulation.scheduler import Scheduler


class Store:
    """The weather of commits.

    Args:
        next_fault: what happens to the next one: `lost` (it is made, and not answered), `repeated` (the store's client repeats a request
            whose answer was lost, and finds its own commit), `refused` (it is not made), or nothing.
    """

    def __init__(self, scheduler: Scheduler, say: Callable[[str], None]) -> None:
        self._scheduler, self._say = scheduler, say
        self.next_fault = ""

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """Within it each commit passes here."""
        made = DeltaTable.create_write_transaction

        def commit(table: DeltaTable, *arguments: Any, **named: Any) -> None:
            name = Path(table.table_uri).name
            self._scheduler.pause(f"commit of {name}")
            fault, self.next_fault = self.next_fault, ""
            if fault == "refused":
                self._say(f"a commit of {name} is refused")
                raise OSError("status code: 503, the store is busy")
            made(table, *arguments, **named)
            if fault == "lost":
                self._say(f"the answer of a commit of {name} is lost")
                raise OSError("status code: 503, the answer is lost")
            if fault == "repeated":
                self._say(f"a commit of {name} is requested twice")
                raise CommitFailedError(f"Transaction failed: Version {table.version() + 1} already exists")
            self._scheduler.pause(f"behind a commit of {name}")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeltaTable, "create_write_transaction", commit)
            yield
