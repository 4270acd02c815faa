"""How a process of the command line ends. Read at Python 3.11.

The interpreter is not finalized: Arrow's threads that still close files of an object store would need it, and abort the process (exit
code 134) once it is gone. So what was registered for the end is called here, and the process ends at once.

| name | why there is no public way |
|---|---|
| `atexit._run_exitfuncs` | calls what was registered; `sys.exit` calls it too, but waits for all threads before it and finalizes the interpreter after it |
"""

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn


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
