"""A session that somebody else has made in this process: it is used as it is, its settings are not changed, and it is not stopped."""

import logging

from pyspark.sql import SparkSession

from cdc_assets.adapters.spark import jvm
from cdc_assets.adapters.spark.settings import SparkSettings

log = logging.getLogger(__name__)


def active_session(settings: SparkSettings) -> SparkSession | None:
    """The process's classic session, if there is one; the log says what differs from the settings."""
    if settings.remote or not jvm.has_context():
        return None
    session = SparkSession.builder.getOrCreate()
    asked = {"spark.master": settings.master, **settings.config}
    differing = [name for name in sorted(asked) if session.conf.get(name, None) != asked[name]]  # a value may be secret
    which = f"these properties differ: {', '.join(differing)}" if differing else "it is as configured"
    log.info("An active session of Spark is used; %s.", which)
    return session
