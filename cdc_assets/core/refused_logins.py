"""Remembers which passwords servers have refused, so that none is offered again and again until the login is locked.

Everything that logs in checks here first: runs, the sensor's ticks, pages, metrics, commands. What one process has found is in the
state folder for the others of the machine. A refused password is offered again after a pause that doubles, since the
login may have been unlocked; another password at once. A login by it that succeeds ends the memory of it; one by another password
does not, since a process whose environment is old would offer the old one after each of them.

*One at a time.* Tasks that log in at the same moment would all be refused. So unless this process has logged in a short time
ago, one goes ahead and the others wait for what it finds, for a while.

*No password is stored:* the state folder holds a salted digest that is slow to make, readable by this user only. *A clock that was set*
back makes no pause longer than it was. *Crash:* what was not written is found out again by one login.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from cdc_assets.core.state_folder import forget, recall, remember
from cdc_assets.errors import CredentialsError

FIRST_PAUSE_S: Final = 20.0
LONGEST_PAUSE_S: Final = 900.0
_MAX: Final = 4
"""Passwords of a user that are remembered."""
_OLD_S: Final = 86_400.0
"""Seconds after which a refusal is forgotten."""
_FRESH_S: Final = 60.0
"""Seconds after a login in which others need not wait for one."""
_LONGEST_TURN_S: Final = 5.0
"""Seconds for which a login waits for another one at most."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A password that was refused.

    Args:
        salt: of the digest, in hexadecimal.
        times: how often in a row.
        at: when last, in seconds since 1970.
        reason: what the server said.
    """

    salt: str
    digest: str
    times: int
    at: float
    reason: str

    def is_of(self, password: str) -> bool:
        return secrets.compare_digest(self.digest, _digest(self.salt, password))

    @property
    def pause_s(self) -> float:
        return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self.times - 1)))

    @property
    def is_over(self) -> bool:
        return not 0 <= time.time() - self.at < self.pause_s


@dataclass(slots=True)
class _Account:
    """Logins of this process by one user of a server."""

    turn: threading.Lock
    succeeded: float = float("-inf")
    """When the last one did, on the monotonic clock."""


_accounts: dict[str, _Account] = {}
_offers_anyway = threading.Event()


@contextmanager
def offered(server: str, user: str, password: str) -> Iterator[None]:
    """A block that logs in once, and raises CredentialsError if it is refused.

    Args:
        server: its name in messages.
        user: empty if the login is by something else than a password of ours.

    Raises:
        CredentialsError: the password was refused a short time ago; the block was not entered.
    """
    if not user:
        yield
        return
    name = f"logins/{hashlib.sha256(f'{user}@{server}'.encode()).hexdigest()[:24]}"
    account = _accounts.setdefault(name, _Account(threading.Lock()))
    is_alone = time.monotonic() - account.succeeded > _FRESH_S and account.turn.acquire(timeout=_LONGEST_TURN_S)
    try:
        before = next((known for known in _known(name) if known.is_of(password)), None)
        if before is not None and not before.is_over and not _offers_anyway.is_set():
            raise _not_offered(before)
        try:
            yield
        except CredentialsError as error:
            _note(name, password, str(error), before.times + 1 if before is not None else 1)
            account.succeeded = float("-inf")
            _offers_anyway.clear()
            raise
        if before is not None:
            _keep(name, _others(name, password))
        account.succeeded = time.monotonic()
    finally:
        if is_alone:
            account.turn.release()


@contextmanager
def offering_anyway() -> Iterator[None]:
    """In the block a refused password is offered, too, once: a person asks, and knows what may have changed."""
    _offers_anyway.set()
    try:
        yield
    finally:
        _offers_anyway.clear()


def _known(name: str) -> list[_Refusal]:
    try:
        found = [_Refusal(**facts) for facts in (recall(name) or {}).get("refused", ())]
    except TypeError:  # not of this form
        return []
    return [refusal for refusal in found if abs(time.time() - refusal.at) < _OLD_S]


def _others(name: str, password: str) -> list[_Refusal]:
    """The newest refusals of other passwords."""
    return [known for known in _known(name) if not known.is_of(password)][1 - _MAX :]


def _note(name: str, password: str, reason: str, times: int) -> None:
    salt = secrets.token_hex(16)
    _keep(name, [*_others(name, password), _Refusal(salt, _digest(salt, password), times, time.time(), reason)])


def _keep(name: str, refusals: list[_Refusal]) -> None:
    if refusals:
        remember(name, {"refused": [asdict(refusal) for refusal in refusals]})
    else:
        forget(name)


def _not_offered(refusal: _Refusal) -> CredentialsError:
    what, _, step = refusal.reason.partition(" Next: ")
    again = datetime.fromtimestamp(refusal.at + refusal.pause_s, UTC)
    return CredentialsError(
        f"{what.rstrip('.')}. The same password is offered again after {again:%H:%M:%S} UTC, since more refusals could lock the "
        f"login; another one at once, and any by `cdc-assets doctor`. Next: {step or 'correct the password'}"
    )


@lru_cache(maxsize=16)
def _digest(salt: str, password: str) -> str:
    return hashlib.scrypt(password.encode(), salt=bytes.fromhex(salt), n=2**14, r=8, p=1).hex()
