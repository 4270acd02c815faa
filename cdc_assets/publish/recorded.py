"""How far topics are published, as the lake knows it: one small file, `<prefix>.__publisher/published.json`.

The truth is the marker in Kafka. The file is written after it, now and then, so it never says more than is published;
retention of topics waits for what it says, without asking a broker. It is replaced as a whole: a crash leaves the former
one. Nothing is written where the manifest is not: a file system that is not mounted would get a folder of its own.

*An older copy of the lake* is recognized by its rows for as long as these are kept (`start`). A publisher that has recognized one records that
beside the place, in `refused.json`, so that none continues later. The lake that it is a copy of has no such file.

*Two publishers.* One that finds the place of another in the file writes its own only if the newest marker names it: the other may have begun
again, with fewer events, while this one was idle. Two that write to different Kafka clusters each find their own marker. So
the file has the place of the one that wrote last, and retention does not wait for the other. A lake should have one publisher.
"""

import json

from pyarrow import fs

from cdc_assets.errors import LakeError
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.lake.system_topics import manifest_directory
from cdc_assets.publish.offset import Published, parse_published

_NAME, _REFUSED = "published.json", "refused.json"


class RecordedOffset:
    """Reads and writes the file; every method may raise LakeError.

    Args:
        prefix: topic prefix of the capture.
    """

    def __init__(self, location: Location, prefix: str) -> None:
        self.directory = f"{prefix}.__publisher"
        self._location, self._prefix = location, prefix
        self._folder = Folder(location, self.directory)

    def write(self, published: Published) -> None:
        """Record a place."""
        if self._location.on_disk and not self._is_there(f"{manifest_directory(self._prefix)}/_delta_log"):
            place = self._location.uri(manifest_directory(self._prefix))
            raise LakeError(
                f"The manifest {place} is not there. Next: see whether its file system is mounted (lake.path)"
            )
        self._folder.write(_NAME, published.text().encode())

    def read(self) -> Published | None:
        """The place recorded last; None if nothing was ever published."""
        if not self._exists():
            return None
        content = self._folder.read(_NAME)
        try:
            return parse_published(content.decode())
        except (LakeError, ValueError):
            place = f"{self._location.uri(self.directory)}/{_NAME}"
            raise LakeError(
                f"{place} does not say how far topics are published. Next: run cdc-assets publish; with --anew if Kafka "
                "has no marker either."
            ) from None

    def refuse(self, entry: str) -> None:
        """Record that this is an older copy of the lake than one with this entry of the manifest, from which topics were published."""
        known = self._refused()
        if entry not in known:
            self._folder.write(_REFUSED, json.dumps([*known, entry]).encode())

    def accept(self, entry: str) -> None:
        """Take that back: the lake has the entry, so that the file was left by a copy that lay in its place."""
        known = self._refused()
        if entry in known:
            self._folder.write(_REFUSED, json.dumps([other for other in known if other != entry]).encode())

    def is_refused(self, entry: str) -> bool:
        """Whether that was recorded."""
        return bool(entry) and entry in self._refused()

    def _refused(self) -> list[str]:
        if not self._is_there(f"{self.directory}/{_REFUSED}"):
            return []
        content = self._folder.read(_REFUSED)
        try:
            return list(json.loads(content))
        except (TypeError, ValueError) as error:
            place = f"{self._location.uri(self.directory)}/{_REFUSED}"
            raise LakeError(f"{place} is no list ({error}). Next: see who else writes there, or delete it.") from error

    def forget(self) -> None:
        """Wait no longer for a publisher that is not used any more."""
        if self._exists():
            self._folder.drop()

    def _exists(self) -> bool:
        return self._is_there(f"{self.directory}/{_NAME}")

    def _is_there(self, path: str) -> bool:
        try:
            found = self._location.existing("").get_file_info(path)
        except STORE_ERRORS as error:
            place = self._location.uri(self.directory)
            raise trouble(f"The folder {place} cannot be read", error, "check lake.path") from error
        return bool(found.type != fs.FileType.NotFound)


def kept_for_former_lake(recorded: Published | None, lake: str) -> str:
    """Why retention waits for a publisher that has published nothing of this lake, such as after a reset; empty if there is none.

    Args:
        recorded: the place recorded last.
        lake: identity of this lake's manifest.
    """
    if recorded is None or recorded.lake == lake:
        return ""
    return (
        "Old events stay in the topics of the lake: retention waits for a publisher that has published nothing of this lake, only of a "
        f"former one (manifest {recorded.lake}; here {lake}). Next: cdc-assets publish; or cdc-assets publish --forget, if "
        "publishing has ended"
    )
