"""Finds tables of a capture that its manifest does not know.

A generation is recorded when the step that made it is complete, and so is a topic of the capture as a whole. So one that is there and has no
mark was made by a run that has died since; or the manifest is an older copy, and the numbers that the table has must not be given again.
"""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from pyarrow import fs

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.system_topics import is_numbered, transaction_topic
from cdc_assets.lake.topics import generation

_THREADS = 16
"""Number of parallel requests to a store."""


def unrecorded(location: Location, marks: Mapping[str, Mark], config: CaptureConfig) -> set[str]:
    """Directories that are there and have no mark: newer generations of topics that have one, and topics of the capture as a whole.

    It costs one question a topic.

    Args:
        marks: recorded content of the lake's tables.

    Raises:
        LakeError: the lake cannot be read.
    """
    newest: dict[str, int] = {}
    for directory, mark in marks.items():
        topic, number = _parts(directory)
        if not mark.timed and is_numbered(topic, config):
            newest[topic] = max(newest.get(topic, 1), number)
    of_capture = {config.events.topic_prefix, transaction_topic(config.events)}
    asked = {*(of_capture - newest.keys()), *(generation(topic, number + 1) for topic, number in newest.items())}
    found = set[str]()
    while asked:
        there = present(location, asked)
        found |= there
        asked = {generation(topic, number + 1) for topic, number in map(_parts, there)}
    return found


def present(location: Location, directories: Collection[str]) -> set[str]:
    """Those of some directories in which there is a Delta table.

    Raises:
        LakeError: the lake cannot be read.
    """
    paths = [f"{directory}/_delta_log" for directory in directories]
    try:
        store = location.existing("")
        if location.on_disk:
            infos = store.get_file_info(paths)
        else:
            with ThreadPoolExecutor(_THREADS) as pool:
                infos = list(pool.map(store.get_file_info, paths))
    except STORE_ERRORS as error:
        raise trouble(f"{location.root} cannot be read", error, "check the path and its rights") from error
    return {name for name, info in zip(directories, infos, strict=True) if info.type != fs.FileType.NotFound}


def _parts(directory: str) -> tuple[str, int]:
    """Topic and number of a generation."""
    topic, _, number = directory.rpartition("@")
    return (topic, int(number)) if number.isdigit() and topic else (directory, 1)
