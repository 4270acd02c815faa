"""What executors need in addition to Spark and Python: this package, which is shipped with each session, and a few
libraries.

*Code.* A zip of the package is added to the session. Executors put it into their working directory before their first task begins.
In sessions of ours `PYTHONPATH` names it there, so that the process that forks workers finds it as well;
`spark.submit.pyFiles` alone would be too late for that one. So executors always run the driver's code, regardless of
the code installed there. In a session that others have started a worker finds it as late as it begins a task, which is
enough to read a lake.

*Libraries* hold native code and are large: they are installed on the executors, or shipped as an archive that
`cdc-assets spark --archive FILE` makes of what is installed here, so that versions agree. `spark.archives` unpacks it beside the zip.
"""

import atexit
import hashlib
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_assets.adapters.spark.executors import context_of
from cdc_assets.adapters.spark.settings import is_local
from cdc_assets.errors import ConfigurationError

LIBRARIES = ("deltalake", "mssql-python", "numpy", "pyarrow", "regex")
"""Libraries that tasks import, as in the extra `tasks`."""
UNPACKED = "cdc_tasks"
"""Folder of the unpacked libraries in an executor's working directory."""
_NOT_FOR_TASKS = frozenset({"cli", "__pycache__"})
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")


@cache
def code_archive() -> Path:
    """A zip of the package, made once per process; its name contains a digest of its content."""
    root = Path(__file__).parents[2]
    files = sorted(path for path in root.rglob("*") if path.is_file() and _travels(path.relative_to(root)))
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    folder = Path(tempfile.mkdtemp(prefix="cdc-assets-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / f"cdc_assets-{digest.hexdigest()[:12]}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as content:
        for path in files:
            content.write(path, Path(root.name) / path.relative_to(root))
    return archive


def ship_code(session: SparkSession) -> None:
    """Have a session's tasks find the package. Workers of a local one find it where this process does."""
    archive, context = code_archive(), context_of(session)
    if context is None:
        session.addArtifact(str(archive), pyfile=True)
    elif not is_local(context.master) and not any(path.endswith(archive.name) for path in context.listFiles):
        context.addPyFile(str(archive))


def python_path(configured: str = "") -> str:
    """`PYTHONPATH` of executors: the code in their working directory, what is configured, and the libraries."""
    return ":".join([code_archive().name, *filter(None, [configured]), UNPACKED])


def build_library_archive(archive: Path) -> list[str]:
    """Pack the installed libraries and what they need; returns names and versions.

    Raises:
        ConfigurationError: one of them is not installed here.
    """
    packed = sorted(_needed(), key=lambda found: found.name.lower())
    draft = archive.with_name(f"{archive.name}.part")
    try:
        with tarfile.open(draft, "w:gz", compresslevel=6) as content:
            for found in packed:
                for file in found.files or []:
                    if ".." not in file.parts and "__pycache__" not in file.parts:
                        content.add(str(found.locate_file(file)), str(file), recursive=False)
        draft.replace(archive)
    finally:
        draft.unlink(missing_ok=True)
    return [f"{found.name} {found.version}" for found in packed]


def _travels(path: Path) -> bool:
    return not _NOT_FOR_TASKS & set(path.parts)


def _needed() -> Iterator[Distribution]:
    """The libraries and, transitively, what they need without extras and on this system."""
    waiting, seen = list(LIBRARIES), set[str]()
    while waiting:
        name = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in seen:
            continue
        seen.add(key)
        try:
            found = distribution(name)
        except PackageNotFoundError as error:
            if name not in LIBRARIES:
                continue  # a marker of another system or of an extra, which is not installed for that reason
            raise ConfigurationError(
                "library of tasks", name, "an installed package", 'run pip install "cdc-assets[tasks]"'
            ) from error
        yield found
        for text in found.requires or []:
            if (match := _REQUIREMENT.match(text)) and "extra ==" not in text:
                waiting.append(match.group(0))
