"""The wheel alone, in an environment that does not know this repository, serves projects of other people."""

import importlib.metadata as metadata
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

from cdc_assets import build_definitions
from cdc_assets.errors import ConfigurationError
from cdc_assets_tests.requirements import hide_all_but
from cdc_assets_tests.shop import ROOT, Shop

DEFINITIONS = """
import dagster as dg
from pyspark.sql import DataFrame

from cdc_assets import build_definitions

ORDERS = dg.AssetKey(["shop", "SalesDb", "dbo", "orders.snapshot"])


@dg.asset(ins={"reads": dg.AssetIn(ORDERS, input_manager_key="shop_envelope_io")})
def orders(context: dg.AssetExecutionContext, reads: DataFrame) -> None:
    context.add_output_metadata({"rows": reads.count()})


defs = dg.Definitions.merge(build_definitions("shop.json"), dg.Definitions(assets=[orders]))
"""
"""What somebody writes who does not use components."""

CAPTURE = """
import sys
import dagster as dg
from {module} import defs

definitions = defs() if callable(defs) else defs
with dg.DagsterInstance.ephemeral() as instance:
    for job in ("{capture}_snapshot", "{capture}_changes"):
        tags = {{"dagster/asset_partition_range_start": "range_01_of_08", "dagster/asset_partition_range_end": "range_08_of_08"}}
        run = definitions.resolve_job_def(job).execute_in_process(instance=instance, tags=tags if "snap" in job else {{}})
        assert run.success
    own = definitions.resolve_implicit_global_asset_job_def()
    run = own.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("{own}")])
    metadata = run.asset_materializations_for_node("{own}")[0].metadata
print({{name: value.value for name, value in metadata.items()}})
"""


INSTALLS = os.environ.get("CDC_TEST_INSTALL") == "1"
"""Whether the wheel is installed by pip from the package index, as its users do; minutes."""


def install(wheel: Path, folder: Path) -> Path:
    """The interpreter of a new environment in which pip has installed the wheel, first alone, then with what tests use."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    for wanted in ([str(wheel)], [f"{wheel}[web]"]):
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True, timeout=900)
        subprocess.run([python, "-m", "pip", "check"], check=True, timeout=240)
        if wanted == [str(wheel)]:
            code = "import importlib.util as u; print([n for n in ('sqlglot', 'mssql_standin', 'dagster_webserver', 'pytest') if u.find_spec(n)])"
            assert subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"
    return python


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the wheel, those packages of this environment that it asks for, and nothing of this repository."""
    folder = tmp_path_factory.mktemp("library")
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"]))
    if INSTALLS:
        return install(Path(wheel), folder / "venv")
    venv.create(folder / "venv", with_pip=False)
    site = next((folder / "venv").glob("lib/python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    packages = Path(
        sys.modules["dagster"].__file__ or ""
    ).parent.parent  # an editable install's own path is not followed
    (site / "packages.pth").write_text(f"{packages}\n")
    [own] = metadata.distributions(path=[str(site)])  # of the wheel, and not of what this environment was set up from
    needed = [Requirement(text) for text in own.requires or ()]
    with_web = [str(one) for one in needed if not one.marker or one.marker.evaluate({"extra": "web"})]
    hide_all_but(["cdc-assets", *with_web], site)
    return folder / "venv" / "bin" / "python"


def run(python: Path, folder: Path, shop: Shop, *arguments: str) -> str:
    """Output of the interpreter in a folder, with the shop's password and port in the environment."""
    names = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CDC_", "VIRTUAL"))}
    environment = names | shop.environment | {"CDC_DATABASE_PORT": str(shop.server.port)}
    environment |= {"CDC_STREAM_IDLE_TIMEOUT_MS": "300", "CDC_TABLE_EXCLUDE_LIST": r"dbo\.dbz_signal"}
    done = subprocess.run(
        [str(python), *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-9000:]
    return done.stdout


def count(shop: Shop, table: str) -> int:
    """Rows on the server."""
    return int(shop.execute(f"SELECT COUNT(*) FROM dbo.{table}")[0][0])


def test_nothing_of_this_repository_is_there(python: Path, shop: Shop, tmp_path: Path) -> None:
    code = "import importlib.util as u, cdc_assets; print(cdc_assets.__file__, *map(u.find_spec, ('resources', 'cdc_assets_tests', 'demo', 'mssql_standin', 'sqlglot')))"
    file, *others = run(python, tmp_path, shop, "-c", code).split()
    assert Path(file).is_relative_to(python.parent.parent)
    assert others == ["None"] * 5


def test_a_base_install_asks_for_nothing_of_the_demo(python: Path, shop: Shop, tmp_path: Path) -> None:
    code = "import importlib.metadata as m; print(*(r for r in m.requires('cdc-assets') if 'extra ==' not in r), sep='\\n')"
    required = {re.split(r"[<>=\[ ]", line)[0] for line in run(python, tmp_path, shop, "-c", code).splitlines()}
    assert {"dagster", "dagster-pyspark", "pyodbc", "pyspark"} <= required
    assert not required & {"sqlglot", "dagster-webserver", "pytest", "moto", "pandas"}


@pytest.mark.long
def test_definitions_of_ones_own(python: Path, shop: Shop, tmp_path: Path) -> None:
    shutil.copy(shop.file, tmp_path / "shop.json")
    (tmp_path / "mine.py").write_text(DEFINITIONS)
    told = run(python, tmp_path, shop, "-c", CAPTURE.format(module="mine", capture="shop", own="orders"))
    assert told.splitlines()[-1] == str({"rows": count(shop, "orders")})


@pytest.mark.long
def test_the_example_project(python: Path, shop: Shop, tmp_path: Path) -> None:
    example = shutil.copytree(ROOT / "docs" / "example", tmp_path / "example")
    told = run(python, example, shop, "-c", CAPTURE.format(module="shop.definitions", capture="sales", own="customers"))
    rows = count(shop, "customers")
    assert told.splitlines()[-1] == str({"rows": rows, "on the server": rows})


def test_its_import_is_quick_and_brings_no_dagster_and_no_spark(python: Path, shop: Shop, tmp_path: Path) -> None:
    code = (
        "import sys, time; start = time.process_time(); import cdc_assets; took = time.process_time() - start; "
        "print(took < 0.2, sorted({'dagster', 'pyspark', 'pyarrow', 'sqlglot'} & sys.modules.keys()))"
    )
    assert run(python, tmp_path, shop, "-c", code).strip() == "True []"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--version"], "cdc-assets "), (["--help"], "doctor"), (["properties", "topic.prefix"], "topic.prefix")],
)
def test_commands(python: Path, shop: Shop, tmp_path: Path, arguments: list[str], told: str) -> None:
    assert told in run(python, tmp_path, shop, "-m", "cdc_assets.cli.main", *arguments)


EVERY_MODULE = """
import importlib
import pkgutil
import cdc_assets

for module in pkgutil.walk_packages(cdc_assets.__path__, "cdc_assets."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError:
        print(module.name)
"""


@pytest.mark.long
def test_modules_of_extras_alone_need_them(python: Path, shop: Shop, tmp_path: Path) -> None:
    lacking = set(run(python, tmp_path, shop, "-c", EVERY_MODULE).split())
    extras = re.compile(r"cdc_assets\.(adapters\.kafka|metrics)\.\w+")
    assert {name for name in lacking if not extras.fullmatch(name)} == set()
    assert "cdc_assets.adapters.kafka.preflight" not in lacking


def test_every_public_name_is_there(python: Path, shop: Shop, tmp_path: Path) -> None:
    code = "import cdc_assets; print(all(getattr(cdc_assets, name).__doc__ for name in cdc_assets.__all__))"
    assert run(python, tmp_path, shop, "-c", code).strip() == "True"


DG = "from dagster_dg_cli.cli import main; main()"


@pytest.mark.long
def test_dg_scaffolds_checks_and_lists(python: Path, shop: Shop, tmp_path: Path) -> None:
    example = shutil.copytree(ROOT / "docs" / "example", tmp_path / "example")
    shutil.rmtree(example / "shop" / "defs" / "sales")
    (example / "shop" / "defs" / "customers.py").unlink()
    assert "cdc_assets.SqlServerCdcComponent" in run(python, example, shop, "-c", DG, "list", "components", "--json")
    scaffold = ["scaffold", "defs", "cdc_assets.SqlServerCdcComponent", "shop", "--hostname", "127.0.0.1"]
    run(python, example, shop, "-c", DG, *scaffold)
    written = example / "shop" / "defs" / "shop" / "defs.yaml"
    attributes = yaml.safe_load(written.read_text())["attributes"]["properties"]
    assert attributes["database.password"] == "${env:CDC_PASSWORD}"
    written.write_text(
        written.read_text().replace("CDC_PASSWORD", "CDC_SHOP_PASSWORD").replace("${env:CDC_USER}", "sa")
    )
    run(python, example, shop, "-c", DG, "check", "defs")
    assert "shop/SalesDb/dbo/orders.changes" in run(python, example, shop, "-c", DG, "list", "defs", "--json")


@pytest.mark.long
def test_dg_checks_and_lists_in_this_repository(shop: Shop) -> None:
    """As whoever has cloned it calls it, by the environment of `make setup`."""

    def dg_says(*arguments: str) -> str:
        environment = os.environ | shop.environment
        command = [sys.executable, "-c", DG, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "superseded" not in done.stdout + done.stderr
        return done.stdout

    dg_says("check", "yaml")
    dg_says("check", "defs")
    assert "shop/SalesDb/dbo/orders.changes" in dg_says("list", "defs", "--json")


def test_a_password_in_plain_sight_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"\$\{env:NAME\}") as refused:
        build_definitions({"topic.prefix": "shop", "database.password": "hunter2"})
    assert "hunter2" not in str(refused.value)
