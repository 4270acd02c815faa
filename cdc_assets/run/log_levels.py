"""Loggers whose plain information people have asked for: by a signal or a notification channel, or by following a capture.

Python drops information unless somebody sets a level, and Dagster's `managed_python_loggers` sets none.
"""

import logging

INFO_LOGGERS = (
    "cdc_assets.signals",
    "cdc_assets.notifications",
    "cdc_assets.ledger.transitions",
    "cdc_assets.snapshot",
    "cdc_assets.streaming",
    "cdc_assets.adapters.spark",
)


def enable_info_logs() -> None:
    """Let them be heard by whichever handlers there are."""
    for name in INFO_LOGGERS:
        logging.getLogger(name).setLevel(logging.INFO)
