"""Which page of the runbook (docs/runbook) belongs to a check, a failed run or a capture's health.

`CDC_RUNBOOK_URL` says where the pages are served, with `{page}` in place of a page's name; without it a page is named by its file.
"""

import os
from typing import Final

from cdc_assets.overview.checks.registry import CHECKS
from cdc_assets.overview.report import Health

RUNBOOK_VARIABLE: Final = "CDC_RUNBOOK_URL"
RUN_FAILED: Final = "run-failed"
_FILE: Final = "docs/runbook/{page}.md"

HEALTH_PAGES: Final[dict[Health, str]] = {"in trouble": "in-trouble", "not known": "not-known"}
"""Page by a capture's health, where somebody has to act or check."""


def runbook_url(page: str) -> str:
    """Where a page of the runbook is.

    Args:
        page: its name.
    """
    return (os.environ.get(RUNBOOK_VARIABLE) or _FILE).replace("{page}", page)


def check_runbook(name: str) -> str:
    """Where the page of a check is; empty for a check of somebody else.

    Args:
        name: the check's name, without its asset.
    """
    return runbook_url(CHECKS[name].page) if name in CHECKS else ""
