"""A table without a key of its own that has one by `message.key.columns`, so that rows get other keys, also those that others had.

In some histories, in addition to their tables; in the others nothing is different by it.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from cdc_assets.core.identifiers import TableId
from cdc_assets_tests.simulation.overlooked import Overlooked
from cdc_assets_tests.simulation.server import MOVE

_OFTEN: Final = 0.06
"""Chance that there is such a table in a history."""
_IDS: Final = range(1, 9)
"""Ids that rows get at first; there are few, so that they are used again."""

Changes = list[tuple[TableId, str, int, str]]


class Moving(Overlooked):
    """Rows get other message keys."""

    moved: TableId | None = None
    """The table."""

    def prepare_moves(self) -> None:
        """Perhaps there is such a table, from the beginning."""
        chance = Random(f"moves {self.seed}")  # noqa: S311 - a history that can be repeated
        if chance.random() >= _OFTEN:
            return
        self.config = replace(self.config, events=replace(self.config.events, message_key_columns=("dbo.coded:id",)))
        self.moved = self.server.create_without_key("coded", rows=chance.randrange(1, 5))
        self.tables.insert(chance.randrange(len(self.tables)), self.moved)
        self.server.scan_all()
        self.say(f"{self.moved} has a message key alone")

    def work_on(self, tables: Sequence[TableId]) -> None:
        """Transactions of such a table are of statements that change its keys, too."""
        if self.moved is None or self.moved not in tables or self.server.locked[self.moved]:
            super().work_on([table for table in tables if table != self.moved])
            return
        others = [table for table in tables if table != self.moved]
        if others and self.rng.random() < 0.5:
            super().work_on(others)
            return
        changes: Changes = []
        ids = set(self.server.rows[self.moved])
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            changes += self._statement(self.moved, ids)
        lsn = self.server.commit(*changes)
        self.say(f"{lsn}: {', '.join(f'{what} {table.table} {key}' for table, what, key, _ in changes)}")

    def _statement(self, table: TableId, ids: set[int]) -> Changes:
        """A statement, or an insertion and a deletion of the same id.

        Args:
            ids: of the rows; changed as they are.
        """
        free, what = sorted(set(_IDS) - ids), self.rng.choice(["insert", "change", "delete", "shift", "swap", "move"])
        if free and (what == "insert" or not ids):
            key = self.rng.choice(free)
            made: Changes = [(table, "insert", key, self._note(table))]
            if self.rng.random() < 0.3:
                return [*made, (table, "delete", key, "")]
            ids.add(key)
            return made
        if what == "delete":
            key = self.rng.choice(sorted(ids))
            ids.remove(key)
            return [(table, "delete", key, "")]
        known, by = sorted(ids), self.rng.choice([1, -1])
        if what == "shift" and min(known) + by > 0:
            targets = {key: key + by for key in known}
        elif what == "swap":
            chosen = self.rng.sample(known, min(len(known), self.rng.choice([2, 2, 3])))
            targets = dict(zip(chosen, [*chosen[1:], chosen[0]], strict=True))
        elif what == "move" and free:
            targets = {self.rng.choice(known): self.rng.choice(free)}
        else:
            targets = {self.rng.choice(known): 0}
        ids.difference_update(targets)
        ids.update(target or key for key, target in targets.items())
        order = self.rng.choice(
            [sorted(targets), sorted(targets, reverse=True), self.rng.sample(list(targets), len(targets))]
        )
        return [
            (table, f"{MOVE}{targets[key]}" if targets[key] not in (0, key) else "update", key, self._note(table))
            for key in order
        ]
