"""Whether the `dagster.yaml` of the Dagster instance has what captures need; `doctor` says what is missing.

Read as the file that it is, from `DAGSTER_HOME` or else the working directory, as `dg dev` finds it: the command line does
without Dagster. Where there is neither, and the configuration is no component's, nothing is said.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from cdc_assets.core.check_result import CheckResult

_FILE: Final = "dagster.yaml"
_COMPONENT: Final = "defs.yaml"
_LOGGERS: Final = "python_logs.managed_python_loggers"
_NEEDED: Final[Mapping[str, tuple[Any, str]]] = {
    "concurrency.pools.default_limit": (1, "else two runs of a capture fence each other"),
    "concurrency.pools.granularity": ("run", "else a run starts before its pool is free, and waits inside"),
    "sensors.use_threads": (True, "else a slow sensor holds up those of all captures"),
    "run_monitoring.enabled": (True, "else a run whose process died counts as running for ever"),
}
"""Values by their path, and why."""


def instance_checks(config: Path, environment: Mapping[str, str] | None = None) -> Iterator[CheckResult]:
    """What the instance lacks; none of it stops a capture on the command line.

    Args:
        config: configuration file of the capture.
        environment: variables; the process's own if None.
    """
    home = (os.environ if environment is None else environment).get("DAGSTER_HOME")
    file = Path(home or ".") / _FILE
    if not file.is_file():
        if home or config.name == _COMPONENT:
            yield _lacking(file, "missing", "there", "copy the dagster.yaml of the example project")
        return
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        yield _lacking(file, "cannot be read", "a YAML file", f"correct it: {type(error).__name__}")
        return
    lacking = False
    for path, (wanted, why) in _NEEDED.items():
        if (value := _at(found, path)) != wanted:
            lacking = True
            yield _lacking(file, f"{path} is {_shown(value)}", _shown(wanted), f"set it, {why}")
    if "cdc_assets" not in (_at(found, _LOGGERS) or ()):
        lacking = True
        why = "else what a capture logs is not on the pages of its runs"
        yield _lacking(file, f"{_LOGGERS} lacks cdc_assets", "cdc_assets", f"add it, {why}")
    if not lacking:
        yield CheckResult("instance", str(file), True, "as captures need it", "as captures need it")


def _lacking(file: Path, actual: str, expected: str, remedy: str) -> CheckResult:
    return CheckResult("instance", str(file), False, actual, expected, remedy, blocking=False)


def _at(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value).lower()
