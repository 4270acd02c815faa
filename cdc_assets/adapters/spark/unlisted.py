"""Keeps secrets among Spark's properties off the command line of its JVM, which every user of the machine may list.

PySpark gives all properties to `spark-submit` as arguments. Those whose names denote secrets (`config.masks`) are handed over in a
file instead. Its folder no other user may enter, and it is there until the JVM has answered. `spark-submit` takes from it what it
does not find among its arguments, so the session has the same properties.

*A process that is killed meanwhile* leaves the folder behind: the next one of the same user that starts a JVM removes it, once it is so old
that no JVM waits for it any more.

*Not where it would change anything else*: a JVM that runs already gets them from PySpark, by calls; and if the user's own
arguments name a file of properties, `spark-submit` reads that one only.
"""

import os
import shlex
import shutil
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

from cdc_assets.adapters.spark import jvm
from cdc_assets.config.masks import denotes_secret

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_FILE: Final = "--properties-file"
_PREFIX: Final = "cdc-spark-"
_OLD_S: Final = 3600.0
"""Seconds after which no JVM reads a file any more: it does so when it starts."""
_ONE_BY_ONE = threading.Lock()
"""The environment belongs to the process, in which several sessions may be requested; pyspark starts one JVM anyway."""
_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", " ": "\\ "} | {
    letter: f"\\{letter}" for letter in "=:#!"
}


@contextmanager
def secrets_unlisted(properties: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Those properties that may be arguments of a JVM that is started in the block; it finds the others in a file."""
    secret = {name: value for name, value in properties.items() if denotes_secret(name)}
    if not secret:
        yield properties
        return
    with _ONE_BY_ONE:
        before = os.environ.get(_ARGUMENTS)
        if jvm.is_started() or (before is not None and _FILE in before):
            yield properties
            return
        _remove_leftovers()
        with TemporaryDirectory(prefix=_PREFIX) as folder:
            file = Path(folder) / "spark.properties"
            file.touch(0o600)
            file.write_text(java_properties(secret), encoding="ascii")
            os.environ[_ARGUMENTS] = (
                f"{_FILE} {shlex.quote(str(file))} --load-spark-defaults {before or 'pyspark-shell'}"
            )
            try:
                yield {name: value for name, value in properties.items() if name not in secret}
            finally:
                if before is None:
                    del os.environ[_ARGUMENTS]
                else:
                    os.environ[_ARGUMENTS] = before


def _remove_leftovers() -> None:
    for folder in Path(gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and time.time() - found.st_mtime > _OLD_S:
                shutil.rmtree(folder)


def java_properties(texts: Mapping[str, str]) -> str:
    """The texts in the form of Java's properties, in ASCII."""
    return "".join(f"{_escaped(name)}={_escaped(text)}\n" for name, text in texts.items())


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) if letter.isascii() else _by_numbers(letter) for letter in text)


def _by_numbers(letter: str) -> str:
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
