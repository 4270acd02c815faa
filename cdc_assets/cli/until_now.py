"""`cdc-assets capture --until-now`: everything that is committed on the server now, and the end."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import typer

from cdc_assets.assembly.mirrors import open_mirrors
from cdc_assets.capture.until_now import UntilNow
from cdc_assets.cli.console import FAILED, NOT_IN_TIME, err, out
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.interruption import Interrupted, limited, sleep
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import TaskRunner
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import CdcError, ConfigurationError, FencedError
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.mirror.work import StepReport
from cdc_assets.shared.progress import StreamSummary

_POLL_S = 0.5


def check_goal(until_now: bool, timeout: float | None, others: Mapping[str, bool]) -> None:
    """Options that contradict `--until-now`.

    Raises:
        ConfigurationError: one of them is given, or `--timeout` without it.
    """
    if timeout is not None and not until_now:
        raise ConfigurationError("option", "--timeout", "--until-now beside it", "add it")
    for option, given in others.items():
        if given and until_now:
            raise ConfigurationError("option", option, "not to be given with --until-now", "leave one of them out")


class Goal:
    """What the command has to bring into the lake, and its mirrors.

    Args:
        timeout_s: seconds after which it ends without; None sets no limit.
    """

    def __init__(self, settings: CaptureConfig, runner: TaskRunner, timeout_s: float | None) -> None:
        self._settings, self._runner, self._timeout_s = settings, runner, timeout_s
        self.until: UntilNow | None = None
        """Set when the server has been queried."""
        self._behind: list[str] = []

    def pursue(self, attempt: Callable[[], StreamSummary | None]) -> StreamSummary | None:
        """Carry out the capture, then bring its mirrors there.

        Raises:
            typer.Exit: not everything is there, which was printed.
            CdcError: the capture failed as a whole.
        """
        summary, waiting = None, list[TableId]()
        with limited(self._timeout_s) as over:
            try:
                summary = attempt()
                waiting = list(summary.waiting) if summary else []
                self._mirror()
            except Interrupted:
                if not over.is_set():
                    raise
        missing = [*(self.until.missing(waiting) if self.until else ["the server was not reached"]), *self._behind]
        if over.is_set() or missing:
            lines = missing or ["the last window border was not reached"]
            self._report(f"after {self._timeout_s:g} s" if over.is_set() else "at the end", lines)
            raise typer.Exit(NOT_IN_TIME if over.is_set() else FAILED)
        out.print("Everything that was committed when the command began is in the lake.")
        return summary

    def _report(self, when: str, missing: Sequence[str]) -> None:
        err.print(f"Not everything that was committed when the command began is in the lake {when}:", style="bold red")
        for line in missing:
            err.print(f"  {line}", markup=False, soft_wrap=True)

    def _mirror(self) -> None:
        """Wait for the mirrors; another process may be keeping them."""
        if not self._settings.mirror.enabled or self.until is None:
            return
        mirrors, events = open_mirrors(self._settings, self._runner, _ignore), self._settings.events
        targets = {topic_name(table, events): target for table, target in self.until.targets().items()}
        taken = {topic_name(table, events) for table in self.until.taken}
        while True:
            troubles: Mapping[str, CdcError] = {}
            try:
                troubles, kept = mirrors.catch_up(), False
            except FencedError:
                kept = True
            known, (found, refused) = mirrors.states(), mirrors.found()
            states = {table.topic: known.get(table.topic, MirrorState()) for table in found if table.topic in taken}
            stopped = [f"the mirror {it}: {error}" for it, error in {**refused, **troubles}.items() if it in taken]
            stopped += [
                f"the mirror {name} lacks changes up to {it.gaps[-1][1]}" for name, it in states.items() if it.gaps
            ]
            late = list(_late(states, targets))
            self._behind = [*stopped, *late]
            if not late or not kept:
                return
            sleep(_POLL_S)


def _late(states: Mapping[str, MirrorState], targets: Mapping[str, Lsn]) -> Iterator[str]:
    """Mirrors that a step may still bring there, for people."""
    for topic, state in states.items():
        target = targets.get(topic, ZERO_LSN)
        if not state.gaps and (not state.lsn or Lsn.parse(state.lsn) < target):
            yield f"the mirror {topic} is up to date to {state.lsn or 'nothing'}, not to {target}"


def _ignore(_: StepReport) -> None:
    pass
