"""Actors that take turns by seed: one at a time, each until its next pause.

An actor is a process of the product (a capture's run, a publisher, a look), played in a thread of its own. It pauses at every
named step (`core.steps`) and at every call of a port; whoever is chosen goes on to its next pause. So a seed gives one history.

*A crash* is an error at a pause, which nothing handles; from then on each further pause of that actor raises it again, so that what
a process would not have reached is not reached. *Sleep* is not to be chosen for some turns, while others of the same kind start and end; one that sleeps lightly
wakes as soon as somebody else has committed to the table at which it stands.
*Who is terminated* is interrupted at a pause as by a second signal, wherever it stands, and once more where it sleeps; what it does to
leave things in order is done.
*An actor that ends with an error that is told to a user* (`CdcError`, but for `InvariantError`) has done its duty; any other error is a
fault of the product, and ends the history. So is to be told that another writer has taken over where there was none.
"""

import random
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from time import process_time
from typing import Final

from cdc_assets.core.interruption import Interrupted
from cdc_assets.errors import CdcError, FencedError, InvariantError
from cdc_assets_tests.crashes import PowerCutError

_PATIENCE_S = 60.0
"""Seconds of processor time after which an actor that does not pause is stuck."""
_PATIENCE = 10
"""So many times that time by the clock is enough, too: it waits for something that never comes."""
_WRITERS: Final = {"snapshot": "capture", "forget": "capture", "rebuild": "mirror", "reconcile": "mirror"}
"""Kinds that write the same as another one."""


def _closed() -> threading.Lock:
    """A gate that one thread opens and another one passes, and closes by that: a lock, which costs less than a semaphore."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class StuckError(AssertionError):
    """An actor neither pauses nor ends."""


@dataclass(eq=False)
class Actor:
    """A process.

    Args:
        kind: what it does.
        is_interrupted: at its next pause, or where it stands.
        is_to_end: it was asked to end, and sleeps no more.
        asleep_until: number of the turn from which it may be chosen.
        wakes_behind: it wakes as soon as another one pauses there; empty if it does not.
    """

    name: str
    kind: str
    body: Callable[[], object]
    asleep_until: int = 0
    wakes_behind: str = ""
    has_crashed: bool = False
    is_interrupted: bool = False
    is_to_end: bool = False
    has_ended: bool = False
    has_rivals: bool = False
    at: str = "its beginning"
    fault: BaseException | None = None
    thread: threading.Thread | None = None
    go: threading.Lock = field(default_factory=lambda: _closed())


class Scheduler:
    """Lets actors take turns.

    Args:
        rng: chooses.
        say: told what happens.
    """

    def __init__(self, rng: random.Random, say: Callable[[str], None]) -> None:
        self._rng, self._say = rng, say
        self._back = _closed()
        self._current: Actor | None = None
        self._started = 0
        self.turn = 0
        self.actors: list[Actor] = []
        self.on_pause: Callable[[Actor], None] = lambda _: None
        """Called when an actor has come to a pause, before anybody goes on."""
        self.to_retry: list[str] = []
        """Kinds of those that have failed, and may be started again."""
        self.accused: list[str] = []
        """What actors have done that none may do."""

    def start(self, kind: str, body: Callable[[], object]) -> Actor:
        """A new process; it does nothing before it is chosen."""
        self._started += 1
        actor = Actor(f"{kind} {self._started}", kind, body)
        actor.thread = threading.Thread(target=self._play, args=(actor,), name=actor.name, daemon=True)
        for other in self.actors:
            if _WRITERS.get(other.kind, other.kind) == _WRITERS.get(kind, kind):
                other.has_rivals = actor.has_rivals = True
        self.actors.append(actor)
        self._say(f"{actor.name} starts")
        return actor

    def _play(self, actor: Actor) -> None:
        actor.go.acquire()
        try:
            if not actor.has_crashed:
                actor.body()
                self._say(f"{actor.name} ends")
        except PowerCutError:
            pass
        except Interrupted:
            self._say(f"{actor.name} has ended as it was asked to")
        except InvariantError as error:
            actor.fault = error
        except CdcError as error:
            if isinstance(error, FencedError) and not actor.has_rivals:
                actor.fault = error
            self.to_retry += [actor.kind] * error.retryable
            self._say(f"{actor.name} ends, told: {type(error).__name__}: {str(error)[:300]}")
        except BaseException as error:  # noqa: BLE001 - raised again by the history
            actor.fault = error
        actor.has_ended = True
        self._back.release()

    def pause(self, at: str) -> None:
        """Called by whatever an actor does; others may take their turns here.

        Raises:
            PowerCutError: the actor has crashed.
            Interrupted: it was terminated.
        """
        actor = self._current
        if actor is None:  # somebody looks who is no actor
            return
        if actor.has_crashed:
            raise PowerCutError(at)
        actor.at = at
        self._back.release()
        actor.go.acquire()
        if actor.has_crashed:
            raise PowerCutError(at)
        if actor.is_interrupted or (actor.is_to_end and at == "sleep"):
            actor.is_interrupted = False
            raise Interrupted(at)

    @property
    def current(self) -> Actor | None:
        """Who goes on now."""
        return self._current

    def awake(self) -> list[Actor]:
        """Those that may be chosen."""
        return [actor for actor in self.actors if actor.asleep_until <= self.turn]

    def of(self, kind: str) -> list[Actor]:
        """Processes of a kind that have not ended."""
        return [actor for actor in self.actors if actor.kind == kind]

    def step(self) -> bool:
        """One turn of somebody who is awake; whether there was one."""
        self.turn += 1
        awake = self.awake()
        if not awake:
            return False
        self.go_on(self._rng.choice(awake))
        return True

    def go_on(self, actor: Actor) -> None:
        """One turn of an actor.

        Raises:
            AssertionError: it ended with what is a fault of the product.
        """
        assert actor.thread is not None
        if actor.thread.ident is None:
            actor.thread.start()
        self._current = actor
        actor.go.release()
        begun, patience = process_time(), _PATIENCE
        while not self._back.acquire(timeout=_PATIENCE_S):
            patience -= 1
            if patience and process_time() - begun < _PATIENCE_S:
                continue  # the machine is busy, or this process was stopped
            frames = sys._current_frames().get(actor.thread.ident or 0)
            raise StuckError(f"{actor.name} is stuck behind {actor.at}:\n{''.join(traceback.format_stack(frames))}")
        self._current = None
        assert not self.accused, self.accused[0]
        if actor.has_ended:
            self.actors.remove(actor)
            if actor.fault is not None:
                raise AssertionError(f"{actor.name} ended with {actor.fault!r}") from actor.fault
        elif not actor.has_crashed:
            self._wake_others(actor)
            self.on_pause(actor)

    def _wake_others(self, actor: Actor) -> None:
        for other in self.actors:
            if other.wakes_behind and other is not actor and other.wakes_behind in actor.at:
                self._say(f"{other.name} wakes, for {actor.name} is {actor.at}")
                other.asleep_until, other.wakes_behind = 0, ""
                for _ in range(self._rng.randrange(6)):
                    if not other.has_ended:
                        self.go_on(other)

    def let_be_fenced(self) -> None:
        """A stranger has written into tables of those that run."""
        for actor in self.actors:
            actor.has_rivals = True

    def crash(self, actor: Actor) -> None:
        """A power cut: whatever it has not committed is forgotten."""
        self._say(f"{actor.name} crashes at {actor.at}")
        actor.has_crashed = True
        while not actor.has_ended:
            self.go_on(actor)

    def terminate(self, actor: Actor) -> None:
        """It is asked to end, and does so with its next turns."""
        if not actor.has_crashed:
            self._say(f"{actor.name} is terminated at {actor.at}")
            actor.is_interrupted = actor.is_to_end = True
            self.wake(actor)

    def sleep(self, actor: Actor, turns: int, behind: str = "") -> None:
        """It is not chosen for so many turns.

        Args:
            behind: it wakes earlier, as soon as another one pauses there; empty if it does not.
        """
        self._say(
            f"{actor.name} falls asleep at {actor.at} for {turns} turns{behind and f', or until another one is {behind}'}"
        )
        actor.asleep_until, actor.wakes_behind = self.turn + turns, behind

    def wake(self, actor: Actor) -> None:
        """It may be chosen again."""
        actor.asleep_until, actor.wakes_behind = 0, ""

    def end_all(self, most_turns: int) -> None:
        """Everybody wakes and goes on until all have ended.

        Raises:
            AssertionError: they do not within so many turns.
        """
        for actor in self.actors:
            actor.asleep_until, actor.wakes_behind = 0, ""
        for _ in range(most_turns):
            if not self.step():
                return
        raise StuckError(f"After {most_turns} turns there still run {[(a.name, a.at) for a in self.actors]}")
