"""The server and the time as actors meet them: others may take their turns at each question."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import ServerBusyError
from cdc_assets_tests.simulation.chunks import answer, kind_of
from cdc_assets_tests.simulation.replicas import Connection, Floor, answering, check_names
from cdc_assets_tests.simulation.scheduler import Scheduler
from cdc_assets_tests.simulation.server import LaggingServer
from cdc_assets_tests.unit.streaming.simulation import SimulatedBulk, SimulatedClock


class Asked:
    """A server's control plane as one actor asks it: others may take their turns at each question."""

    def __init__(self, server: LaggingServer, scheduler: Scheduler) -> None:
        self._server, self._scheduler, self._connection = server, scheduler, Connection(server)

    def leave_forks(self, database: str, forks: Sequence[str]) -> None:
        self._connection.left[database] = tuple(forks)

    def left_forks(self, database: str) -> tuple[str, ...]:
        return self._connection.left.get(database, ())

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._server, name)
        if not callable(found):
            return found

        def ask(*arguments: Any, **named: Any) -> Any:
            self._scheduler.pause(f"server.{name}")
            if self._server.is_busy:
                self._server.is_busy = False
                raise ServerBusyError(
                    "Transaction was deadlocked on lock resources, and has been chosen as the victim."
                )
            if arguments and isinstance(arguments[0], str) and arguments[0] in self._server.held:
                raise self._server.held[arguments[0]]
            return self._connection.ask(name, arguments, named)

        return ask


@dataclass
class AskedBulk(SimulatedBulk):
    """Its data plane."""

    scheduler: Scheduler = None  # type: ignore[assignment]
    needs: Floor | None = None

    def read(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[pa.RecordBatch]:
        self.scheduler.pause(f"server.read of {kind_of(statement)}")
        assert isinstance(self.server, LaggingServer)
        for text, error in list(self.server.refusals.items()):
            if text in statement:
                raise error
        for name, error in [*self.server.troubles.items(), *self.server.held.items()]:
            if f"[{name}]" in statement:
                raise error
        server = answering(self.server, self.needs)
        check_names(server, statement)
        found = answer(server, statement, parameters)
        if found is None:
            yield from SimulatedBulk(server).read(statement, parameters)
        else:
            yield from found.to_batches(max_chunksize=server.batch_rows)

    def reaching(self, database: str, lsn: Lsn, *, captured: bool = True, left: Sequence[str] = ()) -> "AskedBulk":
        return replace(self, needs=(database, lsn, captured, tuple(left)))


class TurnClock(SimulatedClock):
    """Time passes where actors sleep; the capture job works meanwhile, unless it stands still."""

    def __init__(self, server: LaggingServer, scheduler: Scheduler) -> None:
        super().__init__(server)
        self._scheduler, self._lagging = scheduler, server

    def sleep(self, seconds: float) -> None:
        self.slept += timedelta(seconds=seconds)
        self.server.now += timedelta(seconds=seconds)
        if self._lagging.is_prompt:
            self._lagging.scan_all()
        self._scheduler.pause("sleep")
