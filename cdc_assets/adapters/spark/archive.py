"""An archive of the JVM classes that Spark loads (AppCDS), so that a local session starts in half the time.

The archive belongs to one JDK and one set of Spark jars. It lies in the virtual
environment beside them; if one of them changes, the JVM ignores it and starts as
slowly as without. `python -m cdc_assets.adapters.spark.archive` makes it if it is missing.
"""

from pathlib import Path

from cdc_assets.adapters.spark.properties import default_class_archive
from cdc_assets.adapters.spark.session import LazySession, stop_spark
from cdc_assets.adapters.spark.settings import SparkSettings
from cdc_assets.core.jobs import Job


def build_class_archive(path: str) -> None:
    """Start a session, do what every run does, and let the JVM write the archive as it ends (half a minute)."""
    draft = f"{path}.draft"
    options = {"spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Xlog:disable -XX:ArchiveClassesAtExit={draft}"}
    session = LazySession(SparkSettings("local[2]", config=options), class_archive="")
    session.runner().run(str, [1, 2], Job("start"))
    stop_spark(wait_s=120)
    if Path(draft).is_file():
        Path(draft).replace(path)


def main() -> None:
    """Make the archive if it is missing."""
    path = default_class_archive()
    if not Path(path).is_file():
        build_class_archive(path)


if __name__ == "__main__":
    main()
