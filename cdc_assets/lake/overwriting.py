"""Tables whose content is what their writer returned last: all of it, or that of a partition.

*Whole.* One commit removes every file, adds the new ones and gives the table their columns, by the one function that removes
files (`replacing`). Of two writers at the same moment one is first, and the other's commit replaces what that one brought.

*A partition.* Its files lie in a folder of its own below the table's directory, named after its key; so no column needs to say
which rows are whose. A commit removes the files that the newest version has in that folder: which ones is found again for each
attempt, so of two first writers of one partition the second removes what the first has brought. Columns that are new are
added before, columns that are missing are null, and another type is refused: the other partitions have the old one. So is a file
outside such folders, of a table that was written whole, or whose files another program has joined: it may hold rows of any partition.

*Exactly once.* The commit has the application transaction `(writer, 1)`, as an append: a step that is retried in its run finds
it, and does not replace what another run has written meanwhile.

*A crash* before the commit leaves the former version, at first an empty table, and files that no version names.
Vacuum removes these, and those that were replaced, once they are older than the retention; until then former versions can be read.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256

import pyarrow as pa
from deltalake import Schema

from cdc_assets.errors import InvalidValueError, LakeError
from cdc_assets.lake.commits import rows_by_path
from cdc_assets.lake.evolution import is_compatible, lake_schema
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.location import STORE_ERRORS
from cdc_assets.lake.replacing import Fence, KnownFile, Replacement, replace_files
from cdc_assets.lake.tables import DeltaTables, allow_plain_timestamps, arrow_schema, unreadable

_FOLDER = "partition-"
_SHOWN = 60
"""Characters of a partition's key that its folder's name shows at most."""
_OTHER = re.compile(r"[^A-Za-z0-9_.-]")
_NUMBER = 1
"""Version of the application transaction: each writer writes once."""


def partition_folder(key: str) -> str:
    """Folder of a partition's files, below the table's directory.

    Args:
        key: any text.
    """
    return f"{_FOLDER}{_OTHER.sub('_', key)[:_SHOWN]}-{sha256(key.encode()).hexdigest()[:16]}"


def is_outside(path: str, partitions: Sequence[str]) -> bool:
    """Whether a file is of another partition than these.

    Args:
        path: below the table's directory.
        partitions: their keys.
    """
    folder = path.partition("/")[0]
    return folder.startswith(_FOLDER) and folder not in {partition_folder(key) for key in partitions}


def columns_of(schema: pa.Schema) -> pa.Schema:
    """Columns of a table for rows of a structure: all may be null, so that later rows may lack them."""
    return lake_schema(pa.schema([field.with_nullable(True) for field in schema]))


def overwrite(
    tables: DeltaTables,
    directory: str,
    schema: pa.Schema,
    files: Sequence[DataFile],
    fence: Fence,
    partition: str | None = None,
) -> bool:
    """Have files be the content of a table, or of one of its partitions, in one commit; see the module's head.

    Args:
        tables: its application id names the writer, which writes once.
        schema: as `columns_of` gives it.
        files: written below the directory; those of a partition below its folder.
        fence: raises an error if this table is not to be overwritten.
        partition: its key; None for all.

    Returns:
        False if this writer has written already, or there was nothing before and is nothing now.

    Raises:
        InvalidValueError: a column has another type than in the other partitions, or the table is not made of partitions.
        LakeConflictError, LakeFullError, LakeAwayError: not this time.
        LakeError: the store refuses, or a file is missing.
    """
    with _translated(tables, directory):
        if partition is not None or tables.open(directory) is None:
            _require_fitting(tables, directory, schema)
            tables.ensure(directory, schema)
        handle = tables.open(directory)
        if handle is None:
            raise LakeError(f"The Delta table {directory} was removed just now. Next: repeat it.")
        allow_plain_timestamps(handle, schema)
    add = [_described(file) for file in files]
    if partition is None:
        wanted = Replacement(None, add, None, is_new=True, number=_NUMBER, schema=Schema.from_arrow(schema))
        return replace_files(tables, directory, wanted, fence)
    own = f"{partition_folder(partition)}/"

    def check() -> None:
        fence()
        for path in rows_by_path(tables.kept(directory)):
            if not path.startswith(_FOLDER):
                raise InvalidValueError(
                    "partitioned asset",
                    directory,
                    f"a table of partitions; its file {path} is of none: it was written whole, or another program has joined its files",
                    "move the table's folder away, and materialize all partitions",
                )

    wanted = Replacement(lambda path: path.startswith(own), add, None, is_new=True, number=_NUMBER)
    return replace_files(tables, directory, wanted, check)


def _require_fitting(tables: DeltaTables, directory: str, schema: pa.Schema) -> None:
    handle = tables.open(directory)
    if handle is None or is_compatible(known := arrow_schema(handle), schema):
        return
    types = {field.name.lower(): field for field in known}
    changed = [
        f"{field.name} {field.type}, not {types[field.name.lower()].type}"
        for field in schema
        if field.name.lower() in types and not is_compatible(pa.schema([types[field.name.lower()]]), pa.schema([field]))
    ]
    raise InvalidValueError(
        f"columns of {directory}",
        ", ".join(changed),
        "the types that the other partitions have",
        "cast them; or move the table's folder away, and materialize all partitions",
    )


def _described(file: DataFile) -> KnownFile:
    """A file without bounds of positions, which mean nothing in these tables."""
    return KnownFile(file.path, file.size, file.rows, file.written_ms, json.dumps({"numRecords": file.rows}))


@contextmanager
def _translated(tables: DeltaTables, directory: str) -> Iterator[None]:
    try:
        yield
    except STORE_ERRORS as error:
        tables.forget(directory)
        raise unreadable(tables.location.uri(directory), error) from error
