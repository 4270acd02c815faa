"""`cdc-assets spark`: which Spark runs the tasks, and what is installed on its executors."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from cdc_assets.cli.as_json import print_json
from cdc_assets.cli.console import JsonOption, out, show_logs


def spark(
    archive: Annotated[
        Path | None,
        typer.Option(
            "--archive", help="Pack the libraries that tasks need into this file, for spark.archives, and exit."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start the configured Spark and print what is installed on its executors.

    Ends with exit code 1 if they could not run a capture's tasks: no executor starts, a library is missing, or Python
    differs.
    """
    from cdc_assets.adapters.spark.session import LazySession, stop_spark  # other commands need no pyspark
    from cdc_assets.adapters.spark.settings import DEFAULT_FILE, spark_settings
    from cdc_assets.adapters.spark.shipping import UNPACKED, build_library_archive

    if archive is not None:
        for packed in build_library_archive(archive):
            out.print(packed)
        out.print(f"\nspark.archives  {archive.absolute()}#{UNPACKED}", soft_wrap=True)
        return
    show_logs()
    session = LazySession(spark_settings(file=DEFAULT_FILE))
    try:
        found = session.inspect()
    finally:
        stop_spark()
    if as_json:
        print_json({"address": session.settings.address, "tasks": found})
        return
    table = Table("host", "tasks", "Python", "code", "libraries", box=None, header_style="bold")
    rows = Counter(
        (facts["host"], facts["python"], facts["executable"], facts["code"], facts["libraries"]) for facts in found
    )
    for (host, version, executable, code, libraries), tasks in sorted(rows.items()):
        table.add_row(host, str(tasks), f"{version} {executable}", code, libraries)
    out.print(f"Spark at {session.settings.address}: {len(found)} tasks at once.", soft_wrap=True)
    out.print(table)
