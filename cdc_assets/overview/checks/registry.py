"""All checks of both kinds of capture."""

from typing import Final

from cdc_assets.overview.checks import connector, sqlserver

CHECKS: Final = {check.name: check for check in (*sqlserver.CHECKS, *connector.CHECKS)}
"""By name; a name that both kinds have means the same, and has the same page of the runbook."""
