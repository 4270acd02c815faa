"""The folder of cached data, which the processes of one machine share: what is remembered there survives them, and no lake is needed.

Nothing relies on it being there. What cannot be written is remembered by this process only; what cannot be read was not
remembered. A file is replaced at once, so that after a crash it is the former one or the new one.
"""

import json
import logging
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

STATE_VARIABLE = "CDC_STATE_DIR"
"""Variable naming the folder for cached data, such as the last discovered tables; `var` if unset."""

_chosen: Path | None = None
_unwritten: dict[str, Mapping[str, Any]] = {}
"""What could not be written, by name."""


def choose_state_folder(folder: Path) -> None:
    """Use this folder in this process."""
    global _chosen
    _chosen = folder


def state_folder() -> Path:
    """The folder of this process; it may not be there yet."""
    return _chosen or Path(os.environ.get(STATE_VARIABLE) or "var")


def remember(name: str, facts: Mapping[str, Any]) -> None:
    """Remember facts in place of the former ones; only this user of the machine may read them.

    Args:
        name: of a file below the folder, without its ending.
    """
    path = _path(name)
    draft = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(facts), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        if name not in _unwritten:
            log.warning("%s cannot be written, so only this process remembers it: %s", path, error)
        _unwritten[name] = facts
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    else:
        _unwritten.pop(name, None)


def recall(name: str) -> Mapping[str, Any] | None:
    """The facts that were remembered under this name; None if there are none."""
    if name in _unwritten:
        return _unwritten[name]
    try:
        found = json.loads(_path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def forget(name: str) -> None:
    """Remember nothing under this name any more."""
    _unwritten.pop(name, None)
    with suppress(OSError):
        _path(name).unlink(missing_ok=True)


def _path(name: str) -> Path:
    return state_folder() / f"{name}.json"
