"""Where the jobs of mirrors and of comparisons have run: one small file for each kind in `<prefix>.__jobs`.

Those of the capture itself are in its manifest, whose only writer it is. Mirrors and comparisons run beside it, each with a
writer of its own; so each has a file, which is replaced as a whole when jobs have ended. It says what the newest run that had any
has counted. Nothing else depends on it: a crash before the file is replaced, or a lake that refuses it, leaves an older count.
"""

import json
from collections.abc import Mapping
from contextlib import suppress

from cdc_assets.core.jobs import JobKind
from cdc_assets.core.ran_on import JobAccount, RanOn
from cdc_assets.errors import LAKE_ERRORS
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location
from cdc_assets.ledger.codec import decode, encode

_END = ".json"


class RecordedJobs:
    """Reads and writes where jobs beside a capture have run.

    Args:
        prefix: topic prefix of the capture.
    """

    def __init__(self, location: Location, prefix: str) -> None:
        self._folder = Folder(location, f"{prefix}.__jobs")
        self._written: dict[JobKind, RanOn] = {}

    def write(self, kind: JobKind, account: JobAccount) -> None:
        """Record what a run has counted of a kind, if that is more than before."""
        found = account.of(kind)
        if not found or found == self._written.get(kind):
            return
        with suppress(*LAKE_ERRORS):
            self._folder.write(f"{kind}{_END}", json.dumps(encode(found)).encode())
            self._written[kind] = found

    def read(self) -> Mapping[str, RanOn]:
        """What is recorded, by kind.

        Raises:
            LakeError: it cannot be read.
        """
        names = self._folder.names(_END)
        return {name.removesuffix(_END): decode(RanOn, json.loads(self._folder.read(name))) for name in names}
