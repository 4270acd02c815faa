"""What hinders a capture, as its own processes have met it: small files in `<prefix>.__hindrances`, one for each kind of work.

A look from outside asks questions of its own, and these may be answered while those of a run are not: a right on one change table was taken
away, a mirror cannot follow, a broker refuses a start. So who is hindered writes why, and empties the file once the same work has gone on.

*Whose word counts.* A file names the claim under which the capture was streamed (`manifest`). A process that another one has replaced finds
a newer claim there, and writes nothing more. One that could not even begin has no claim: it leaves the number as it is, and if another one is at
work, that puts its own word back within seconds.

*Of mirrors several processes speak at once*, each of those that it has tried. No file of theirs is written twice: who has something to say
reads all files, writes another one with the newest word about each mirror, and removes those that it has read. So two who do that at once
leave two files, and whoever reads them takes the newest words. That a mirror continues is a word as well, and is kept for a day.

*Crash.* What was written stays until the next process has done the same work; what was not written is met again by it.
*A lake that cannot be written* keeps the former file: that it cannot, every look finds by itself.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, Self
from uuid import uuid4

from cdc_assets.errors import LAKE_ERRORS, RetryableError, describe_error
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location
from cdc_assets.lake.system_topics import manifest_directory
from cdc_assets.ledger.codec import decode, encode

Work = Literal["stream", "mirrors"]
_CLAIM, _FOUND, _WORDS = "claim", "hindrances", "words"
_AGAIN = timedelta(seconds=10)
"""Time after which the file is compared again: somebody else may have written it."""
THE_RUN = "The last run"
"""What cannot continue if all of it cannot."""
_END = ".json"
_OWN = "-"
"""What parts the kind of work from the rest of a name, of files that are never written twice."""
_TICK, _KEPT = timedelta(microseconds=1), timedelta(days=1)
_LONGEST = 2000
"""Characters of a reason that are kept."""


@dataclass(frozen=True, slots=True)
class Hindrance:
    """One thing that hinders.

    Args:
        why: the error, with the next step.
        retried: whether it is tried again by itself, and may succeed then.
        since: when it was met first (UTC).
    """

    why: str
    retried: bool
    since: datetime

    @classmethod
    def of(cls, error: Exception, now: datetime) -> Self:
        """What an error means to who is hindered by it."""
        return cls(describe_error(error)[:_LONGEST], isinstance(error, RetryableError), now)


@dataclass(frozen=True, slots=True)
class _Word:
    """What a process has said of one thing.

    Args:
        at: when that was so (UTC).
        found: what hinders it; None if it continues.
    """

    at: datetime
    found: Hindrance | None = None


Hindrances = Mapping[str, Hindrance]
"""The reason, by what cannot continue: a database, a topic, or all of it."""


class RecordedHindrances:
    """Reads and writes what hinders a capture.

    Args:
        prefix: topic prefix of the capture.
    """

    def __init__(self, location: Location, prefix: str) -> None:
        self._folder = Folder(location, f"{prefix}.__hindrances")
        self._log = Folder(location, f"{manifest_directory(prefix)}/_delta_log")
        self._claim_before = 0
        """Claim under which the file was written before the writer's own (`begin`)."""
        self._last: dict[Work, tuple[datetime, Hindrances]] = {}
        """What was recorded last, and when that was compared with the file."""

    def begin(self, work: Work) -> None:
        """Take note of whose word the file holds, before the capture is claimed: a claim that is written later is a successor's."""
        with suppress(*LAKE_ERRORS):
            self._claim_before = self._recorded(work)[1]

    def write(
        self,
        work: Work,
        errors: Mapping[str, Exception],
        now: datetime,
        claim: int | None = None,
        *,
        last_word: bool = False,
    ) -> None:
        """Record all that hinders one kind of work now, unless it is recorded; nothing if it continues.

        Args:
            errors: by what cannot continue.
            claim: number under which the writer has claimed the capture; None if it could not, so that whoever has corrects it.
            last_word: whether this writer says nothing more, so that the file is compared in any case.
        """
        last_at, last = self._last.get(work, (None, {}))
        found = {what: Hindrance.of(error, now) for what, error in errors.items()}
        is_new = last_at is not None and abs(now - last_at) < _AGAIN
        if is_new and _texts(last) == _texts(found) and not last_word:
            return
        with suppress(*LAKE_ERRORS):
            recorded, by = self._recorded(work)
            if claim is not None and by > claim and by != self._claim_before:
                return  # who has taken over has said what hinders it
            kept = {what: _older(one, last.get(what) or recorded.get(what)) for what, one in found.items()}
            if self._differs(recorded, by, kept, claim):
                self._record(work, kept, by if claim is None else claim)
            self._last[work] = now, kept

    def _differs(self, recorded: Hindrances, by: int, kept: Hindrances, claim: int | None) -> bool:
        """Whether the file says something else, or names another writer whose word counts more."""
        if _texts(recorded) != _texts(kept):
            return True
        return claim is not None and (by > claim or (by < claim and bool(kept)))

    def update(
        self, work: Work, errors: Mapping[str, Exception], asked: Collection[str], began: datetime, now: datetime
    ) -> None:
        """Record what hinders a part of one kind of work, which several processes may do.

        Args:
            errors: by what cannot continue.
            asked: what was tried; of all else that is recorded, nothing is known now.
            began: when it was tried: what continues since, by the word of another process, is not hindered.
        """
        with suppress(*LAKE_ERRORS):
            files = self._files(work)
            known = _newest(map(_words_in, files.values()))
            said = {what: _Word(now) for what in asked if what not in errors and _is_hindered(known.get(what))}
            for what, error in errors.items():
                old = known.get(what, _Word(began))
                is_later = old.found is None and began < old.at <= now
                word = _Word(began, _older(Hindrance.of(error, now), old.found))
                if not is_later and _texts(_hindered({what: word})) != _texts(_hindered({what: old})):
                    said[what] = word
            if said and self._is_there():
                after = {what: max(word.at, known[what].at + _TICK) for what, word in said.items() if what in known}
                said = {what: replace(word, at=after.get(what, word.at)) for what, word in said.items()}
                self._say(work, known | said, files, now)

    def _say(self, work: Work, words: Mapping[str, _Word], instead: Iterable[str], now: datetime) -> None:
        """Write words, and remove the files that they are from."""
        lasting = {what: word for what, word in words.items() if word.found or abs(now - word.at) < _KEPT}
        content = json.dumps({_WORDS: encode(lasting)}).encode()
        self._folder.write(f"{work}{_OWN}{uuid4().hex}{_END}", content)
        for name in instead:
            with suppress(*LAKE_ERRORS):  # another process has read it as well
                self._folder.remove(name)

    def _record(self, work: Work, found: Hindrances, by: int) -> None:
        if self._is_there():
            content = {_CLAIM: by, _FOUND: encode(found)}
            self._folder.write(f"{work}{_END}", json.dumps(content).encode())

    def _recorded(self, work: Work) -> tuple[Hindrances, int]:
        """What the file says, and under which claim it was written."""
        name = f"{work}{_END}"
        return _decoded(self._folder.read(name)) if name in self._folder.names(_END) else ({}, 0)

    def _is_there(self) -> bool:
        """Whether the lake holds the capture: into the empty folder of one that is not mounted nothing is written."""
        return bool(self._log.names(_END))

    def read(self) -> Mapping[str, Hindrances]:
        """What is recorded, by kind of work; nothing of a file that cannot be understood.

        Raises:
            LakeError: it cannot be read.
        """
        files = self._files()
        works = {_work_of(name) for name in files}
        return {
            work: _hindered(_newest(_words_in(content) for name, content in files.items() if _work_of(name) == work))
            for work in works
        }

    def _files(self, work: str = "") -> dict[str, bytes]:
        """What is written of one kind of work, or of all; read again if a file was replaced meanwhile."""
        while True:
            names = self._names(work)
            try:
                return {name: self._folder.read(name) for name in names}
            except LAKE_ERRORS:
                if set(names) <= set(self._names(work)):
                    raise

    def _names(self, work: str) -> list[str]:
        return [name for name in self._folder.names(_END) if work in ("", _work_of(name))]


def _work_of(name: str) -> str:
    return name.removesuffix(_END).partition(_OWN)[0]


def _words_in(content: bytes) -> dict[str, _Word]:
    """The words in a file; none of one that is not of this form."""
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        data = json.loads(content)
        if _WORDS in data:
            return {str(what): decode(_Word, one) for what, one in data[_WORDS].items()}
    return {what: _Word(one.since, one) for what, one in _decoded(content)[0].items()}


def _newest(files: Iterable[Mapping[str, _Word]]) -> dict[str, _Word]:
    """The newest word about each thing."""
    found: dict[str, _Word] = {}
    for words in files:
        found |= {what: word for what, word in words.items() if what not in found or found[what].at < word.at}
    return found


def _is_hindered(word: _Word | None) -> bool:
    return word is not None and word.found is not None


def _hindered(words: Mapping[str, _Word]) -> dict[str, Hindrance]:
    return {what: word.found for what, word in words.items() if word.found is not None}


def _decoded(content: bytes) -> tuple[Hindrances, int]:
    """What a file says, and under which claim it was written; nothing of one that is not of this form."""
    try:
        data = json.loads(content)
        found = data[_FOUND] if _CLAIM in data else data  # of a version that did not write the claim
        return {str(what): decode(Hindrance, one) for what, one in found.items()}, int(data.get(_CLAIM, 0))
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}, 0


def _older(new: Hindrance, old: Hindrance | None) -> Hindrance:
    """The same as before with the time at which it began."""
    return new if old is None else Hindrance(new.why, new.retried, min(new.since, old.since))


def _texts(found: Hindrances) -> dict[str, tuple[str, bool]]:
    """What is said, without the numbers in it."""
    return {what: ("".join(c for c in one.why if not c.isdigit()), one.retried) for what, one in found.items()}
