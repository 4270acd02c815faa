"""Lets Dagster's storage remember where a capture's record is, beside the state folder of each machine (`lake.known`).

A run in a container without the volume of the lake has neither, and would begin a new lake on its own disk, as would the next one.
So a process that has seen the record stores that in Dagster, in the store that its daemons have for such values. Before anything
is read or written, a process gets what Dagster knows. A relative `lake.path` is compared as it is written, too: from
another working directory it means another folder.

*Crash:* the next tick or report does it.
"""

import json
from dataclasses import dataclass

import dagster as dg

from cdc_assets.config.settings import LakeSettings
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
    """
    name = f"cdc_assets/lake/{page.to_user_string()}"
    text = instance.run_storage.get_cursor_values({name}).get(name)
    recorded = Home(*json.loads(text)) if text else None
    if known_record(home.address) is not None:
        if recorded != home:
            instance.run_storage.set_cursor_values({name: json.dumps([home.address, home.path])})
    elif recorded is not None and home.address == recorded.address:
        remember_record(home.address, "Dagster remembers it")
    elif recorded is not None and home.path == recorded.path:
        remember_record(home.address, f"Dagster remembers it at {recorded.address}")
