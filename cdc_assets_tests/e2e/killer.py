"""Kills runs as a power cut does."""

from dataclasses import dataclass

from cdc_assets.core.steps import STEPS
from cdc_assets_tests.e2e.conftest import Daemon


@dataclass
class Killer:
    """Kills runs one after another and counts what came of it.

    Args:
        daemon: whose runs die.
        deaths: killed runs that are accounted for.
        failures: runs that failed by themselves, as they should.
    """

    daemon: Daemon
    deaths: int
    failures: int

    @classmethod
    def at_rest(cls, daemon: Daemon) -> "Killer":
        """Begins when no run works and the lake agrees with the server."""
        daemon.await_rest()
        return cls(daemon, daemon.killed_runs(), daemon.failed_steps())

    def light(self, step: str) -> None:
        """The next run that reaches the step dies."""
        assert step.partition(":")[0] in STEPS
        self.daemon.fuse.write_text(step)

    def kill_at(self, chain: list[str]) -> None:
        """The run that is to die at the first step, which is lit, then the one after it at the second, and so on."""
        for number, step in enumerate(chain):
            if number:
                self.light(step)
            self.deaths += 1
            self.daemon.wait_until(lambda: not self.daemon.fuse.exists(), f"a run reaches {step} and dies")
            self.daemon.wait_until(lambda: self.daemon.killed_runs() == self.deaths, f"the death at {step} is noticed")

    def assert_whole(self, failures: int = 0) -> None:
        """Nothing is lost, nothing doubled, and nothing failed but what we killed and what the test expects."""
        self.daemon.await_rest()
        assert self.daemon.killed_runs() == self.deaths
        assert self.daemon.shop.doubled() == []
        assert self.daemon.failed_steps() - self.failures == failures
