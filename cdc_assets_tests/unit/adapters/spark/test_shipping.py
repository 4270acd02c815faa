"""What executors are sent: our code, which then needs nothing but the libraries of the extra `tasks`."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from cdc_assets.adapters.spark import daemon, shipping
from cdc_assets.adapters.spark.preflight import require_shipped_code
from cdc_assets.errors import ConfigurationError, EngineError

ROOT = Path(__file__).parents[4]
_IMPORTS = """
import sys
from importlib import import_module, metadata
for name in {modules!r}:
    import_module(name)
print(sys.modules["cdc_assets"].__file__)
owners = metadata.packages_distributions()
tops = {{name.partition(".")[0] for name, module in sys.modules.items() if getattr(module, "__file__", None)}}
print(*sorted({{owner for top in tops for owner in owners.get(top, [])}}))
"""


@pytest.mark.long
def test_shipped_code_needs_the_libraries_of_tasks_alone(tmp_path: Path) -> None:
    archive = shipping.code_archive()
    modules = [*daemon._OF_TASKS, "cdc_assets.adapters.sqlserver.bulk", "cdc_assets.adapters.spark.lake_source"]
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS.format(modules=modules)],
        env={"PYTHONPATH": str(archive)}, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    code, owners = done.stdout.splitlines()
    assert code.startswith(str(archive))
    optional = {"pandas", "python-dateutil", "pytz", "six", "tzdata"}  # pyspark takes them if they are there
    allowed = {found.name for found in shipping._needed()} | {"pyspark", "py4j"} | optional
    environment = {"setuptools"}  # older virtual environments begin with it: its .pth imports a hook in every process
    assert set(owners.split()) - {"cdc-assets"} - environment <= allowed


def test_neither_the_stand_in_nor_the_command_line_is_shipped() -> None:
    names = zipfile.ZipFile(shipping.code_archive()).namelist()
    assert "cdc_assets/adapters/spark/daemon.py" in names
    assert not [
        name for name in names if name.startswith(("standin/mssql_standin", "cdc_assets/cli")) or "__pycache__" in name
    ]


def test_executors_find_the_drivers_code_before_any_other() -> None:
    assert shipping.python_path("/own").split(":") == [shipping.code_archive().name, "/own", shipping.UNPACKED]


def test_other_code_than_the_drivers_is_reported() -> None:
    own = shipping.code_archive().name
    facts = {"host": "h", "missing": {}, "code": f"/spark/app-1/0/{own}/cdc_assets/__init__.py"}
    require_shipped_code([facts], "spark://m:7077", own)
    with pytest.raises(EngineError, match="would run other code than this process: /opt/old"):
        require_shipped_code(
            [facts, facts | {"code": "/opt/old/cdc_assets-1.zip/cdc_assets/__init__.py"}], "spark://m:7077", own
        )


def test_libraries_are_those_of_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name.partition(">")[0] for name in extras["tasks"]} == set(shipping.LIBRARIES)


def test_archive_holds_installed_libraries_and_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "LIBRARIES", ("rich",))
    packed = shipping.build_library_archive(tmp_path / "tasks.tar.gz")
    assert [line.partition(" ")[0].lower() for line in packed] == ["markdown-it-py", "mdurl", "pygments", "rich"]
    with tarfile.open(tmp_path / "tasks.tar.gz") as content:
        names = content.getnames()
    assert {"rich/console.py", "mdurl/__init__.py"} <= set(names)
    assert not [name for name in names if name.startswith(("/", "..")) or "__pycache__" in name]
    monkeypatch.setattr(shipping, "LIBRARIES", ("no-such-library",))
    with pytest.raises(ConfigurationError, match="no-such-library"):
        shipping.build_library_archive(tmp_path / "other.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.tar.gz"]
