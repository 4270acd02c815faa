"""Loggers whose INFO messages users have requested: by a signal or notification channel, or by following a capture.

Python drops INFO messages unless a level is set, and Dagster's `managed_python_loggers` sets none.
"""

import logging

INFO_LOGGERS = (
    "cdc_assets.signals",
    "cdc_assets.system_topics.notifications",
    "cdc_assets.ledger.transitions",
    "cdc_assets.snapshot",
    "cdc_assets.streaming",
    "cdc_assets.adapters.spark",
    "cdc_assets.core.outages",
)


def enable_info_logs() -> None:
    """Set the level of these loggers to INFO; the existing handlers print them."""
    for name in INFO_LOGGERS:
        logging.getLogger(name).setLevel(logging.INFO)
