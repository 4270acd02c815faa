"""How a process of the command line ends. Read at Python 3.11.

The interpreter is not finalized: Arrow's threads that still close files of an object store would need it, and abort the process (exit
code 134) once it is gone. So what was registered for the end is called here, and the process ends at once.

*No command hangs.* One that is to end may wait for what cannot be interrupted, such as a server of Spark Connect that is stopped.
It ends all the same (`give_up`). That is as safe as any crash (`core.steps`).

| name | why there is no public way |
|---|---|
| `atexit._run_exitfuncs` | calls what was registered; `sys.exit` calls it too, but waits for all threads before it and finalizes the interpreter after it |
"""

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

from cdc_assets.cli.console import INTERRUPTED, warn
from cdc_assets.core.interruption import PATIENCE_S

_PRINT_S = 1.0
"""Seconds in which a line is written; what waits may be a reader of the output that does not read."""


def end_process(code: int | str | None) -> NoReturn:
    """End this process.

    Args:
        code: as that of `SystemExit`.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, BrokenPipeError):  # it is closed, or its reader has closed the pipe
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def give_up() -> None:
    """End this process, which was asked to end and has not: for `core.interruption.listening`."""
    text = f"the command has not ended within {PATIENCE_S:.0f} s, so it is killed; nothing is lost, and the next run continues"
    telling = threading.Thread(target=warn, args=(text,), daemon=True)
    telling.start()
    telling.join(_PRINT_S)
    os._exit(INTERRUPTED)
