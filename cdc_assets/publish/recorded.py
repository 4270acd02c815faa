"""How far topics are published, as the lake knows it: one small file for each Kafka cluster, `<prefix>.__publisher/published-<cluster>.json`.

The truth is the marker in Kafka. The file is written after it, now and then, so it never says more than is published;
retention of topics waits for what it says, without asking a broker. It is replaced as a whole: a crash leaves the former
one. Nothing is written where the manifest is not: a file system that is not mounted would get a folder of its own.

*Two publishers.* One that finds the place of another in the file writes its own only if the newest marker names it: the other may have begun
again, with fewer events, while this one was idle.

*Two clusters.* Retention waits for the slower one. A file is removed only after another one says for whom to wait: that of an earlier version,
`published.json`, which names no cluster; those of clusters that one takes the place of, because its marker came from there, or because somebody
has said what to do without one. Whoever publishes there still writes it again. A crash in between leaves both, so retention waits.
"""

from collections.abc import Callable, Sequence

from pyarrow import fs

from cdc_assets.errors import LakeError
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.lake.system_topics import manifest_directory
from cdc_assets.publish.offset import Published, parse_published

_NAME = "published"
_SUFFIX = ".json"


class RecordedOffset:
    """Reads and writes the file; every method may raise LakeError.

    Args:
        prefix: topic prefix of the capture.
        cluster: identity of the Kafka cluster; empty if it is not known.
    """

    def __init__(self, location: Location, prefix: str, cluster: str = "") -> None:
        self._unnamed = f"{_NAME}{_SUFFIX}"
        self._own = f"{_NAME}-{cluster}{_SUFFIX}" if cluster else self._unnamed
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
        self._folder.write(self._own, published.text().encode())
        if self._own != self._unnamed and self._is_there(f"{self.directory}/{self._unnamed}"):
            self._folder.remove(self._unnamed)

    def read(self) -> Published | None:
        """The place recorded last for this cluster; None if nothing was ever published there."""
        return self._parsed(self._own) if self._is_there(f"{self.directory}/{self._own}") else None

    def read_all(self) -> Sequence[Published]:
        """The places of all clusters; that of this one comes first, then those that were published to last."""
        found = {name: self._parsed(name) for name in self._names()}
        order = sorted(found.items(), key=lambda one: (one[0] != self._own, -one[1].written))
        return [published for _, published in order]

    def forget_others(self, is_over: Callable[[Published], bool]) -> None:
        """Wait no longer for publishers to other clusters, if their places say so; this one is recorded."""
        for name in self._names():
            if name != self._own and is_over(self._parsed(name)):
                self._folder.remove(name)

    def _names(self) -> Sequence[str]:
        return self._folder.names(_SUFFIX)

    def _parsed(self, name: str) -> Published:
        content = self._folder.read(name)
        try:
            return parse_published(content.decode())
        except (LakeError, ValueError):
            place = f"{self._location.uri(self.directory)}/{name}"
            raise LakeError(
                f"{place} does not say how far topics are published. Next: run cdc-assets publish; with --anew if Kafka "
                "has no marker either."
            ) from None

    def forget(self) -> None:
        """Wait no longer for a publisher that is not used any more."""
        if self._names():
            self._folder.drop()

    def _is_there(self, path: str) -> bool:
        try:
            found = self._location.existing("").get_file_info(path)
        except STORE_ERRORS as error:
            place = self._location.uri(self.directory)
            raise trouble(f"The folder {place} cannot be read", error, "check lake.path") from error
        return bool(found.type != fs.FileType.NotFound)


def kept_for_former_lake(recorded: Sequence[Published], lake: str) -> str:
    """Why retention waits for a publisher that has published nothing of this lake, such as after a reset; empty if there is none.

    Args:
        recorded: the places of all clusters.
        lake: identity of this lake's manifest.
    """
    former = next((published.lake for published in recorded if published.lake != lake), None)
    if former is None:
        return ""
    return (
        "Old events stay in the topics of the lake: retention waits for a publisher that has published nothing of this lake, only of a "
        f"former one (manifest {former}; here {lake}). Next: cdc-assets publish; or cdc-assets publish --forget, if "
        "publishing has ended"
    )
