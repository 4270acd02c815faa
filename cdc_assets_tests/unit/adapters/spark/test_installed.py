"""Spark's workers import what is installed, not the archives beside it."""

from pathlib import Path

import pytest

from cdc_assets.adapters.spark.installed import prefer_installed


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name in ("pyspark/python/lib", "py4j"):
        (tmp_path / "site" / name).mkdir(parents=True)
    return tmp_path / "site"


def test_archives_of_the_installed_package_are_left_out(site: Path) -> None:
    lib = site / "pyspark/python/lib"
    others = ["", str(site / "pyspark/jars/spark-core.jar"), "/usr/lib/python311.zip", str(site)]
    places = [others[0], f"{lib}/pyspark.zip", f"{lib}/py4j-0.10.9.9-src.zip", *others[1:]]
    prefer_installed(places)
    assert places == others


def test_those_of_another_spark_stay(site: Path, tmp_path: Path) -> None:
    places = [
        str(tmp_path / "pyspark/python/lib/pyspark.zip"),
        "/opt/spark/python/lib/py4j-0.10.9.9-src.zip",
        str(site),
    ]
    before = list(places)
    prefer_installed(places)
    assert places == before


def test_one_whose_package_is_not_installed_stays(site: Path) -> None:
    (site / "py4j").rmdir()
    places = [str(site / "pyspark/python/lib/py4j-0.10.9.9-src.zip"), str(site)]
    prefer_installed(places)
    assert len(places) == 2
