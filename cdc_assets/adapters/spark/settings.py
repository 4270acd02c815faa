"""Choice of Spark: the environment, then given values, then a file in the form of `spark-defaults.conf`.

| | environment | file |
|---|---|---|
| a cluster, or local | `CDC_SPARK_MASTER` | `spark.master` |
| a Spark Connect server | `CDC_SPARK_REMOTE` | `spark.remote` |
| the file | `CDC_SPARK_CONF` | |
| any other property | | `spark.…` |

Without any of them Spark is local. Three properties are specific to cdc-assets: `spark.cdc.tasks`, `spark.cdc.threads` and `spark.cdc.executor.timeout`.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cdc_assets.config.formats import parse_java_properties
from cdc_assets.errors import ConfigurationError

MASTER_VARIABLE = "CDC_SPARK_MASTER"
REMOTE_VARIABLE = "CDC_SPARK_REMOTE"
CONF_VARIABLE = "CDC_SPARK_CONF"
DEFAULT_FILE = Path("resources/spark.conf")
"""Path relative to the working directory, used by the command line."""
LOCAL = "local[*]"
_TASKS, _THREADS, _TIMEOUT = "spark.cdc.tasks", "spark.cdc.threads", "spark.cdc.executor.timeout"
_OURS = frozenset({"spark.master", "spark.remote", _TASKS, _THREADS, _TIMEOUT})
_LOCAL = re.compile(r"local(\[\s*(\*|\d+)\s*(,\s*\d+\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
_SECONDS = re.compile(r"(\d+)\s*(s|m|min|h)?")
_REMOTE = re.compile(r"sc://(?:\[[\w:.%]+\]|[^][/:;?#@]+)(?::\d+)?(?:/(?:;[^=;/?#]+=[^=;/?#]*)*)?")
"""An address that pyspark takes. What it says of others would show their parameters, one of which may be a token."""
_BEHIND_PLACE = re.compile(r"[/;?#]")
_UNITS = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def is_local(master: str) -> bool:
    """Whether tasks of this master run in workers of the session's own JVM."""
    return _LOCAL.fullmatch(master) is not None


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings of Spark.

    Args:
        master: Spark's master; unused if `remote` is given, empty if only the session knows, which others make.
        remote: Spark Connect address such as `sc://host:15002`.
        tasks: number of parallel tasks; 0 asks Spark.
        executor_timeout_s: seconds that a cluster may be without any executor while tasks wait for one.
        config: further Spark properties.
        threads: whether Spark is left out: all is done in threads of this process (`early`).
    """

    master: str = LOCAL
    remote: str = field(default="", repr=False)
    tasks: int = 0
    executor_timeout_s: float = 60.0
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    threads: bool = False

    @property
    def local(self) -> bool:
        """Whether tasks run on this machine, in workers of this session's own JVM."""
        return not self.remote and is_local(self.master)

    @property
    def address(self) -> str:
        """Address for messages, without the parameters of a Connect address, which may hold a token."""
        return self.remote.partition(";")[0] or self.master or "its own address"

    def slots(self) -> int:
        """Number of parallel tasks if known without a session, otherwise 0."""
        if self.tasks or self.remote:
            return self.tasks
        if self.local:
            inside = self.master.partition("[")[2].rstrip("]").split(",")[0].strip() or "1"
            return os.cpu_count() or 1 if inside == "*" else int(inside)
        workers = _LOCAL_CLUSTER.fullmatch(self.master)
        return int(workers[1]) * int(workers[2]) if workers else 0


def spark_settings(
    master: str = "",
    remote: str = "",
    tasks: int = 0,
    config: Mapping[str, object] | None = None,
    file: str | Path = "",
    environment: Mapping[str, str] | None = None,
) -> SparkSettings:
    """The settings in force: the environment overrides the given values, and these override the file.

    Args:
         master: Spark's master; empty if not given.
        remote: Spark Connect address; empty if not given.
        tasks: number of parallel tasks; 0 if not given.
        config: Spark properties.
        file: file in the form of `spark-defaults.conf`; used if it exists. `CDC_SPARK_CONF` names another, which must
            exist; without either, `spark-defaults.conf` in the folder `SPARK_CONF_DIR` is used, as Spark itself does.
        environment: the process's own if None.

    Raises:
        ConfigurationError: the file cannot be read, or a value is not valid.
    """
    variables = os.environ if environment is None else environment
    found = _properties(file, variables) | {name: str(value) for name, value in (config or {}).items()}
    wanted = (
        (variables.get(MASTER_VARIABLE, ""), variables.get(REMOTE_VARIABLE, "")),
        (master, remote),
        (found.get("spark.master", ""), found.get("spark.remote", "")),
    )
    chosen = next((pair for pair in wanted if any(pair)), (LOCAL, ""))
    if chosen[1] and not _REMOTE.fullmatch(chosen[1]):
        raise ConfigurationError(
            "Spark remote",
            _BEHIND_PLACE.split(chosen[1].removeprefix("sc://"))[0].rpartition("@")[2],  # the rest may be secret
            "an address such as sc://host:15002, then /;name=value for each parameter",
            "correct it; in a value, such as a token, write = / ; ? # as %3D %2F %3B %3F %23",
        )
    return SparkSettings(
        chosen[0] or LOCAL,
        chosen[1],
        tasks or _number(found.get(_TASKS, "0")),
        _seconds(found.get(_TIMEOUT, "60s")),
        {name: value for name, value in found.items() if name not in _OURS},
        _flag(found.get(_THREADS, "false")),
    )


def _properties(file: str | Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Properties of the first file that exists."""
    named, folder = environment.get(CONF_VARIABLE), environment.get("SPARK_CONF_DIR")
    if not named:
        places = [Path(file)] if str(file) else []
        places += [Path(folder) / "spark-defaults.conf"] if folder else []
        named = next((str(place) for place in places if place.is_file()), "")
    if not named:
        return {}
    try:
        texts = parse_java_properties(Path(named).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            "Spark configuration", named, "a readable file like spark-defaults.conf", f"check {CONF_VARIABLE}: {error}"
        ) from error
    for name in texts:
        if not name.startswith("spark."):
            raise ConfigurationError(f"property in {named}", name, "a name that begins with spark.", "correct it")
    return {name: text.strip() for name, text in texts.items()}


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ConfigurationError(_TASKS, text, "a whole number; 0 lets Spark decide", "correct it")
    return int(text)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigurationError(_THREADS, text, "true or false", "correct it")
    return text.lower() == "true"


def _seconds(text: str) -> float:
    match = _SECONDS.fullmatch(text.strip())
    if not match:
        raise ConfigurationError(_TIMEOUT, text, "a time such as 90s or 5m", "correct it")
    return float(int(match[1]) * _UNITS[match[2]])
