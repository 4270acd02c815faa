"""Metadata that identifies an asset of a capture, so that a translator may choose any key for it."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

TABLE, TOPIC, ROLE = "cdc/table", "cdc/topic", "cdc/role"
"""Metadata of each asset of a captured table: its name on the server, its topic, and `source`, `snapshot` or `changes`."""


def asset_facts(context: dg.InputContext | dg.OutputContext) -> Mapping[str, Any]:
    """Metadata of the asset that is loaded or written; empty if it is not an asset of this code location."""
    if isinstance(context, dg.OutputContext):
        return context.definition_metadata or {}
    upstream = context.upstream_output
    return (upstream.definition_metadata if upstream else None) or {}
