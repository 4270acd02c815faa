"""Lets Dagster's storage remember where a capture's record is, beside the state folder of each machine (`lake.known`).

A run in a container without the volume of the lake has neither, and would begin a new lake on its own disk, as would the next one.
So a process that has seen the record stores that in Dagster, in the store that its daemons have for such values. Before anything
is read or written, a process gets what Dagster knows. A relative `lake.path` is compared as it is written, too: from
another working directory it means another folder.

*A value that cannot be read*, of another version, is replaced by a process that knows the record; one that does not know it goes no further,
since it could begin a new lake.

*Crash:* the next tick or report does it.
"""

import json
from contextlib import suppress
from dataclasses import dataclass

import dagster as dg

from cdc_assets.config.settings import LakeSettings
from cdc_assets.errors import LakeError, shortened
from cdc_assets.lake.known import known_record, remember_record
from cdc_assets.lake.location import Location


@dataclass(frozen=True, slots=True)
class Home:
    """Where a capture's record is.

    Args:
        address: of its Delta table.
        path: `lake.path` as it is written.
    """

    address: str
    path: str

    @classmethod
    def of(cls, lake: LakeSettings, directory: str) -> "Home":
        """That of a directory in the lake of these settings.

        Raises:
            CdcError: there can be no lake at that address.
        """
        return cls(Location.of(lake).uri(directory), lake.path)


def share_home(instance: dg.DagsterInstance, page: dg.AssetKey, home: Home) -> None:
    """Exchange with Dagster what is known of the record.

    Args:
        page: the asset that carries the capture's page.

    Raises:
        LakeError: what Dagster knows cannot be read, and this process knows nothing.
    """
    name = f"cdc_assets/lake/{page.to_user_string()}"
    text, own = instance.run_storage.get_cursor_values({name}).get(name), json.dumps([home.address, home.path])
    if known_record(home.address) is not None:
        if text != own:
            instance.run_storage.set_cursor_values({name: own})
    elif text:
        recorded = _home_in(text, name)
        if home.address == recorded.address:
            remember_record(home.address, "Dagster remembers it")
        elif home.path == recorded.path:
            remember_record(home.address, f"Dagster remembers it at {recorded.address}")


def _home_in(text: str, name: str) -> Home:
    with suppress(ValueError):
        match json.loads(text):
            case [str(address), str(path)]:
                return Home(address, path)
    raise LakeError(
        f"Where the lake is cannot be read from Dagster's storage: the value {name} is {shortened(text)}, expected the address "
        "of the record and lake.path. Next: use one version of cdc-assets in all processes, and let one of them tick that has "
        "the lake's state folder, which replaces the value"
    )
