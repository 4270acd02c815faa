"""What `doctor` says of the Dagster instance."""

from pathlib import Path

import pytest
import yaml

from cdc_assets.cli.instance import instance_checks
from cdc_assets.core.check_result import CheckResult

ROOT = Path(__file__).parents[3]
COMPONENT = Path("shop/defs/sales/defs.yaml")


def checks(folder: Path, text: str | None, config: Path = COMPONENT) -> list[CheckResult]:
    if text is not None:
        (folder / "dagster.yaml").write_text(text)
    return list(instance_checks(config, {"DAGSTER_HOME": str(folder)} if text is not None else {}))


@pytest.mark.parametrize("path", ["dagster.yaml", "docs/example/dagster.yaml"])
def test_the_instances_of_the_repository_have_what_is_needed(tmp_path: Path, path: str) -> None:
    [only] = checks(tmp_path, (ROOT / path).read_text())
    assert only.ok


def test_both_have_the_same_values() -> None:
    ours, example = (
        yaml.safe_load((ROOT / path).read_text()) for path in ("dagster.yaml", "docs/example/dagster.yaml")
    )
    assert {name: value for name, value in ours.items() if name not in ("nux", "python_logs")} == {
        name: value for name, value in example.items() if name != "python_logs"
    }


def test_what_is_missing_is_told_and_stops_nothing(tmp_path: Path) -> None:
    found = checks(tmp_path, "concurrency: {pools: {default_limit: 2}}")
    assert [result.actual for result in found] == [
        "concurrency.pools.default_limit is 2",
        "concurrency.pools.granularity is not set",
        "sensors.use_threads is not set",
        "run_monitoring.enabled is not set",
        "python_logs.managed_python_loggers lacks cdc_assets",
    ]
    assert not any(result.ok or result.blocking for result in found)
    assert "fence" in found[0].remedy


def test_a_component_without_an_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [only] = checks(tmp_path, None)
    assert (only.ok, only.actual) == (False, "missing")
    assert checks(tmp_path, None, Path("shop.json")) == []


def test_a_file_that_is_no_yaml(tmp_path: Path) -> None:
    [only] = checks(tmp_path, "a: [")
    assert only.actual == "cannot be read"
