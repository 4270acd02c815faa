"""Has Spark's workers import the installed PySpark in place of the archives that lie in it.

For workers of a Spark that was installed by pip, the JVM puts `pyspark/python/lib/pyspark.zip` and the archive of py4j in front
of all other modules. They hold what is installed beside them, so the same is imported from either place; but only for
installed modules Python keeps the compiled form. Archives of any other Spark, as that of a cluster's executors, stay where they are.
"""

from collections.abc import MutableSequence
from pathlib import Path


def prefer_installed(places: MutableSequence[str]) -> None:
    """Take out archives that hold what is installed in another of the places.

    Args:
        places: where Python searches for modules, as `sys.path`; changed.
    """
    for place in list(places):
        archive = Path(place)
        site = archive.parents[3] if archive.match("pyspark/python/lib/*.zip") else None
        if site is not None and str(site) in places and (site / archive.stem.partition("-")[0]).is_dir():
            places.remove(place)
