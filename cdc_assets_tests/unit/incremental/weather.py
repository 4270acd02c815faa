"""What happens on a server while it is captured: transactions of every kind, a slow or paused Agent, a power cut."""

import random
import threading

from cdc_assets_tests.crashes import PowerCutError
from cdc_assets_tests.unit.signals.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE

_BUSY = ("marker-written", "chunk-read", "window-complete", "signals-recorded", "reads-committed", "reading")
_MAX = 400
"""Changes after which nothing more is written, so that the stream can end."""


class Weather:
    """At each step something may be written, and one step is the last; `reading` stands for each span that is read.

    Args:
        world: with a table `orders` of `id` and `version`, which grows with each change.
        chance: decides.
        cut: the step that is the last.
        agent: whether the Agent may be slow and pause.
    """

    def __init__(self, world: World, chance: random.Random, cut: int, *, agent: bool = False) -> None:
        self.world, self.chance, self.left, self._agent = world, chance, cut, agent
        self.version = 0
        self._lock = threading.RLock()
        world.meanwhile = lambda: self("reading")

    @property
    def rows(self) -> dict[int, int]:
        """Version by key on the server now."""
        rows = self.world.server.execute("SELECT id, version FROM dbo.orders", database=DATABASE)
        return {int(key): int(version) for key, version in rows}

    def __call__(self, name: str) -> None:
        with self._lock:
            if name != "reading":  # a thread of the tasks: a cut there would be an error of a task
                self.left -= 1
                if self.left == 0:
                    raise PowerCutError(name)
            if name in _BUSY and self.version < _MAX:
                self.write()
                if self._agent and self.chance.random() < 0.1:
                    self.world.server.agent.pause()
                    threading.Timer(0.1, self.world.server.agent.resume).start()

    def write(self) -> None:
        """One transaction of a few changes; one in six is rolled back."""
        statements = "; ".join(self._change() for _ in range(self.chance.randint(1, 3)))
        self.world.sql(f"BEGIN TRAN; {statements}; {'ROLLBACK' if self.chance.random() < 0.15 else 'COMMIT'}")

    def _change(self) -> str:
        self.version += 1
        key, version = self.chance.randint(1, 150), self.version
        update = f"UPDATE dbo.orders SET version = {version} WHERE id = {key}"
        kind = self.chance.random()
        if kind < 0.2:
            return f"{update}; DELETE FROM dbo.orders WHERE id = {key}"
        if kind < 0.3:
            free = f"NOT EXISTS (SELECT 1 FROM dbo.orders WHERE id = {key + 1})"
            return f"UPDATE dbo.orders SET id = {key + 1}, version = {version} WHERE id = {key} AND {free}"
        insert = f"INSERT INTO dbo.orders SELECT {key}, {version}"
        return f"{insert} WHERE NOT EXISTS (SELECT 1 FROM dbo.orders WHERE id = {key}); {update}"

    def clear_up(self) -> None:
        """Capture everything."""
        with self._lock:
            self.world.server.agent.resume()
            self.world.server.agent.latency_s = 0
            self.world.server.agent.drain()
