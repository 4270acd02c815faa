"""Remembers which page a capture has, so that it is found when the capture's file cannot be read any more.

A file with a comma too many says neither the topic prefix nor the connector, of which the key of the page is made; and it is that page
which must stop saying that all is well. So each load that succeeds notes them in the state folder, by the path of the file.
Properties in Python or YAML have none: theirs are noted by the names as they are written.

*Crash:* the next load notes them. Without a state folder that lasts nothing is known, as of a capture that is new.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cdc_assets.config.formats import flat
from cdc_assets.core.state_folder import recall, remember
from cdc_assets.defs.catalog import Catalog
from cdc_assets.defs.configuration import CaptureSource
from cdc_assets.errors import ConfigurationError

_NAMES = ("name", "topic.prefix")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the names of a capture's objects in Dagster are made of.

    Args:
        name: how the capture is called in Dagster.
        prefix: its topic prefix.
        page: short name of the asset that carries its page.
    """

    name: str
    prefix: str
    page: str


def note_loaded(capture: CaptureSource, catalog: Catalog) -> None:
    """Note that a capture is there."""
    place, facts = _place(capture), asdict(Loaded(catalog.names.capture, catalog.prefix, catalog.page))
    if place and recall(place) != facts:
        remember(place, facts)


def loaded_before(capture: CaptureSource) -> Loaded | None:
    """What was noted of a capture when it was there last; None if it never was."""
    place = _place(capture)
    facts = recall(place) if place else None
    try:
        return Loaded(**facts) if facts else None
    except TypeError:  # somebody has changed the file
        return None


def _place(capture: CaptureSource) -> str:
    """Name of the file in which it is noted; empty if nothing tells the capture from others."""
    if isinstance(capture, Mapping):
        try:
            texts = flat(dict(capture))
        except ConfigurationError:
            return ""
        own = "\n".join(texts.get(name, "") for name in _NAMES).strip()
    else:
        own = str(Path(capture).absolute())
    return f"loaded/{hashlib.sha256(own.encode()).hexdigest()[:16]}" if own else ""
