"""What a wheel holds, and what the code location file says."""

import re
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder

from cdc_assets import __version__

ROOT = Path(__file__).parent.parent


def members(project: Path, target: Path) -> list[str]:
    """Members of the wheel that the build back end makes of a project."""
    return zipfile.ZipFile(
        next(WheelBuilder(str(project)).build(directory=str(target), versions=["standard"]))
    ).namelist()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Members of the library's wheel."""
    return members(ROOT, tmp_path_factory.mktemp("wheel"))


def test_wheel_holds_the_library_alone(wheel: list[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel}
    assert tops == {"cdc_assets", next(top for top in tops if top.endswith(".dist-info"))}
    assert {
        "cdc_assets/py.typed",
        "cdc_assets/defs/envelope_io.py",
        "cdc_assets/adapters/spark/log4j2.properties",
    } <= set(wheel)


def test_nobody_is_sent_to_an_index_for_the_stand_in() -> None:
    projects = [tomllib.loads((home / "pyproject.toml").read_text())["project"] for home in (ROOT, ROOT / "standin")]
    wanted = [text for one in projects for texts in one["optional-dependencies"].values() for text in texts]
    wanted += [text for one in projects for text in one["dependencies"]]
    wanted += [lock.read_text() for lock in ROOT.glob("requirements*.txt")]
    assert not [text for text in wanted if "standin" in text.replace("-", "").lower()]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "standin").glob("*.md")]
    assert len(pages) > 40
    assert not [page for page in pages if re.search(r"install\b[^`\n]*\bmssql[-_]standin", page.read_text())]


def test_both_wheels_say_their_licence(wheel: list[str], tmp_path: Path) -> None:
    for found in (wheel, members(ROOT / "standin", tmp_path)):
        assert [name for name in found if name.endswith(".dist-info/licenses/LICENSE")]
    assert (ROOT / "LICENSE").read_bytes() == (ROOT / "standin" / "LICENSE").read_bytes()


def test_the_changelog_says_in_few_lines_what_this_version_is() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert len(lines) <= 60
    newest = next(line for line in lines if line.startswith("## "))
    projects = [tomllib.loads((home / "pyproject.toml").read_text())["project"] for home in (ROOT, ROOT / "standin")]
    assert {newest} == {f"## {project['version']}" for project in projects} == {f"## {__version__}"}


def test_no_section_that_makes_dagster_ignore_the_workspace() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert not {"dagster", "dg"} & tools.keys()


def test_workspace_names_module_directory_and_location() -> None:
    (entry,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    module = entry["python_module"]
    assert module == {
        "module_name": "resources.definitions",
        "working_directory": ".",
        "location_name": "cdc_assets",
    }


def test_locks_have_hashes_for_everything_and_no_index() -> None:
    for lock in sorted(ROOT.glob("requirements*.txt")):
        text = lock.read_text()
        entries = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert entries
        assert all("==" in line and line.endswith("\\") for line in entries), lock
        assert "--hash=sha256:" in text
        assert "://" not in text, f"{lock} names an index or address"


def test_locks_satisfy_the_project() -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name
    from packaging.version import Version

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    for lock, wanted in (
        ("requirements.txt", project["dependencies"] + project["optional-dependencies"]["web"]),
        ("requirements-dev.txt", project["dependencies"] + extras),
    ):
        lines = (ROOT / lock).read_text().splitlines()
        pins = [Requirement(line.removesuffix("\\")) for line in lines if line and not line.startswith((" ", "#"))]
        locked = {canonicalize_name(pin.name): Version(next(iter(pin.specifier)).version) for pin in pins}
        for text in wanted:
            requirement = Requirement(text)
            version = locked.get(canonicalize_name(requirement.name))
            assert version is not None, f"{requirement.name} is not in {lock}: run `make lock`"
            assert requirement.specifier.contains(version), f"{text} against {version} in {lock}: run `make lock`"


def test_composition_root_is_short() -> None:
    assert len((ROOT / "resources" / "definitions.py").read_text().splitlines()) < 60
