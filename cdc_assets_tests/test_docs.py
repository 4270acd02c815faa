"""What the documents say is so: commands, links, properties, steps, metadata, variables."""

import json
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

import cdc_assets
from cdc_assets import errors
from cdc_assets.cli.console import TRACEBACK_VARIABLE
from cdc_assets.cli.main import COMMANDS
from cdc_assets.config.load import CONFIGURATION_VARIABLE
from cdc_assets.config.misspelt import OF_PROCESSES
from cdc_assets.config.properties import PROPERTIES, property_of
from cdc_assets.core.state_folder import STATE_VARIABLE
from cdc_assets.core.steps import STEPS, VARIABLE
from cdc_assets.defs.envelope_io import FROM_LSN, TO_LSN
from cdc_assets.defs.row_facts import OPERATIONS
from cdc_assets.overview.checks import connector, sqlserver
from cdc_assets.overview.checks.check import table_of
from cdc_assets_tests.e2e.browser import SHOWN
from cdc_assets_tests.kafka.option_names import is_option

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "spec"),
    ROOT / "benchmarks" / "README.md",
    ROOT / "standin" / "README.md",
]
OPERATIONS_PAGE = (ROOT / "docs" / "operations.md").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):.*?## ", (ROOT / "Makefile").read_text(), re.MULTILINE))

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def cells(text: str, heading: str, columns: tuple[int, ...] = (1,)) -> list[str]:
    """Code in some columns, counted from 1, of the table below a heading."""
    section = text.split(f"## {heading}")[1].split("\n## ")[0]
    found = [line.split("|")[column] for line in section.splitlines() if line.startswith("|") for column in columns]
    return [name for cell in found for name in re.findall(r"`([^`]+)`", cell)]


@documents
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_pictures_are_those_that_the_tests_take() -> None:
    """Each is shown by a page, and small."""
    pictures = sorted((ROOT / "docs" / "_images").iterdir())
    assert [path.name for path in pictures] == sorted(f"{name}.png" for name in SHOWN)
    assert [path.name for path in pictures if path.stat().st_size > 250 * 1024] == []
    shown = {
        page: re.findall(r"!\[[^\]]+\]\((?:docs/|\.\./)?_images/([^)]+)\)", page.read_text()) for page in DOCUMENTS
    }
    assert {name for names in shown.values() for name in names} == {path.name for path in pictures}
    begin = [ROOT / "README.md", *(ROOT / "docs" / "start").glob("*.md")]
    assert len(begin) == 4
    assert all(shown[page] for page in begin), "the first page and each quick start"


def words(pages: Iterable[Path]) -> int:
    """Without the signs that draw tables, lists and pictures."""
    return sum(any(sign.isalnum() for sign in word) for page in pages for word in page.read_text().split())


def test_pages_are_few_words() -> None:
    """Specifications and the generated page of properties are for looking things up."""
    pages = [
        page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "spec" and page.name != "configuration.md"
    ]
    assert words(pages) <= 27_500, "Next: remove what another page says too"
    assert words([ROOT / "benchmarks" / "README.md"]) <= 3_000
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


DECISIONS = sorted(path for path in (ROOT / "docs" / "decisions").glob("*.md") if path.stem != "index")


def test_ten_decisions_are_recorded() -> None:
    assert len(DECISIONS) >= 10


@pytest.mark.parametrize("page", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_says_what_was_measured_on_one_page(page: Path) -> None:
    text = page.read_text()
    assert {"Context", "What was measured", "Consequences", "What would change it"} <= {
        name.rstrip(".") for name in re.findall(r"^\*\*([A-Z][^*]+)\*\*", text, re.MULTILINE)
    }
    assert len(text.split()) <= 300
    assert f"({page.name})" in (page.parent / "index.md").read_text()


@documents
def test_make_targets_exist(document: Path) -> None:
    used = set(re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", document.read_text(), re.MULTILINE))
    assert {name for pair in used for name in pair if name} <= TARGETS | {"help"}


def test_every_target_is_declared_and_explained() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE).group(1).split())  # type: ignore[union-attr]
    rules = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    assert rules == phony == TARGETS


@documents
def test_commands_exist(document: Path) -> None:
    known = set(COMMANDS)
    used = set(re.findall(r"cdc-assets ([a-z]+)", document.read_text()))
    assert used <= known | {"properties"}


def test_extras_and_public_names_exist() -> None:
    texts = [document.read_text() for document in DOCUMENTS]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    used = {
        name for text in texts for names in re.findall(r"cdc-assets\[([a-z,]+)\]", text) for name in names.split(",")
    }
    assert used <= set(extras)
    assert "otel" in used
    named = (ROOT / "README.md").read_text().split("The public names are those of", 1)[1].split(".\n", 1)[0]
    assert set(re.findall(r"`(\w+)`", named)) == set(cdc_assets.__all__) - {"__version__"}


NO_PROPERTIES = re.compile(
    r"(sys|cdc|dbo|msdb)\.\w.*|(database\.)?schema\.table"  # of the server
    r"|source\.(commit_lsn|change_lsn|sequence|snapshot|ts_ns|version)|lake\.form|connect\.parameters|(io|org)\.\w+\..*"  # of an event
    r"|resources\.\w+|server\.(agent|bulk|clock|faults)"  # of Python
    r"|engine\.[a-z.]+|database\.(server\.id|include\.list)|offset\.mismatch\.strategy|read\.only"  # of captures by other connectors
    r"|(max\.message\.bytes|sasl\.[a-z.]+|topics\.regex|isolation\.level|bootstrap\.servers|(key|value)\.converter|consumer\.override\..*|files\.[a-z.<>]+|schemas\.file|errors\.tolerance)"
    r"|(route|add|delete|drop|replace|key\.enforce|key\.field|table\.(fields?|op|expand|json))\.[a-z.]+"  # of transforms
    r"|topic\.(regex|replacement)|converted\.timezone|(include|exclude)\.list"
    r"|acme\..*|(spark|concurrency|storage)\..*|[\w-]+\.(json|yaml|conf|toml|py)"  # of Spark and Dagster, and files
)
"""Names with dots in the documents that are none of ours."""


@pytest.mark.parametrize(  # configuration.md is generated from the table itself
    "document", [path for path in DOCUMENTS if path.name != "configuration.md"], ids=lambda path: path.name
)
def test_properties_exist(document: Path) -> None:
    """In backticks, also with a value or by its end alone, and as keys of JSON."""
    text = document.read_text()
    names = re.findall(r"`([a-z][A-Za-z0-9-]*(?:\.[\w<>-]+)+)(?:=[^`]*)?`", text)
    for name in {*names, *re.findall(r'"([a-z][A-Za-z0-9-]*(?:\.[\w-]+)+)":', text)}:
        by_its_end = any(known.name.endswith(f".{name}") for known in PROPERTIES)
        of_client = document.name == "kafka.md" and is_option(name)
        assert NO_PROPERTIES.fullmatch(name) or by_its_end or of_client or property_of(name)


def test_steps_say_what_is_true_when_they_are_reached() -> None:
    """Their list is in the code alone, which the page names."""
    assert "`cdc_assets/core/steps.py`" in OPERATIONS_PAGE
    assert min(map(len, STEPS.values())) > 20


def test_variables_are_all_there() -> None:
    """Constants of the code; properties' own variables have one row together."""
    own = re.compile(r'^[A-Z_]+(?:: Final)? = "(CDC_[A-Z_]+[A-Z])"', re.MULTILINE)
    found = {name for path in (ROOT / "cdc_assets").rglob("*.py") for name in own.findall(path.read_text())}
    assert {CONFIGURATION_VARIABLE, STATE_VARIABLE, TRACEBACK_VARIABLE, VARIABLE} <= found
    assert set(cells(OPERATIONS_PAGE, "Environment")) == {*found, "CDC_<PROPERTY>"}
    assert set(OF_PROCESSES) == found, "so that misspelt ones are known"


def test_errors_are_all_there() -> None:
    """With whether they are repeated."""
    rows = [
        line.split("|") for line in (ROOT / "docs" / "errors.md").read_text().splitlines() if line.startswith("| `")
    ]
    listed = {row[1].strip(" `"): row[2].strip().startswith("yes") for row in rows}
    roots = {"CdcError", "RetryableError", "TerminalError"}
    classes = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and name not in roots}
    assert listed == {name: kind.retryable for name, kind in classes.items() if issubclass(kind, errors.CdcError)}


@pytest.mark.site
def test_pages_become_a_site(tmp_path: Path) -> None:
    """Without a warning, with search but for the specifications, and with every page in its table of contents."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    index = json.loads((tmp_path / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")"))
    found = {
        index["docnames"][page]
        for pages in index["terms"].values()
        for page in (pages if isinstance(pages, list) else [pages])
    }
    assert {"index", "operations", "runbook/index", "start/server"} <= found
    assert not {page for page in found if page.startswith("spec/")}, "specifications are for the code"
    assert "CdcTranslator" in (tmp_path / "python.html").read_text()


def test_metadata_is_all_there() -> None:
    told = set(cells(OPERATIONS_PAGE, "Metadata of a materialization"))
    fixed = {"rows", "bytes", "windows", "from_lsn", "to_lsn", "last_commit", "lag_seconds"}
    assert {f"rows_{name}" for name in OPERATIONS.values()} | fixed <= told


def test_tables_of_checks_are_those_of_the_registry() -> None:
    assert table_of(sqlserver.CHECKS) in OPERATIONS_PAGE
    assert table_of(connector.CHECKS) in (ROOT / "docs" / "other-databases.md").read_text()


def test_input_metadata_is_named() -> None:
    architecture = (ROOT / "docs" / "architecture.md").read_text()
    assert all(f"`{name}`" in architecture for name in (FROM_LSN, TO_LSN))


REFERENCE = re.compile(r"\bspec(?:ification)? ([a-z][a-z-]*)((?:(?:,| and)? §[0-9]+(?:\.[0-9]+|[a-z])*)+)")
SPECIFIED = {
    page.stem: set(re.findall(r"^#+ ([0-9]+(?:\.[0-9]+)*[a-z]?)[. ]", page.read_text(), re.MULTILINE))
    for page in (ROOT / "docs" / "spec").glob("*.md")
}


def referring() -> list[Path]:
    return [
        path
        for folder in ("cdc_assets", "cdc_assets_tests", "benchmarks", "docs", "resources")
        for kind in ("*.py", "*.md")
        for path in (ROOT / folder).rglob(kind)
    ]


def test_references_to_specifications_lead_somewhere() -> None:
    found = 0
    for path in referring():
        for name, sections in REFERENCE.findall(path.read_text()):
            assert name in SPECIFIED, f"{path} refers to a specification {name} that is not in docs/spec"
            for section in re.findall(r"§([0-9.a-z]*[0-9a-z])", sections):
                assert section in SPECIFIED[name], f"{path}: docs/spec/{name}.md has no §{section}"
                found += 1
    assert found > 50, "the pattern finds the references no more"


def test_no_reference_leaves_out_its_document() -> None:
    for path in referring():
        loose = re.findall(r"(?:\bspec §|\bdesign §).{0,20}", path.read_text())
        assert not loose or path == Path(__file__), f"{path}: {loose}"


PLACES = re.compile(r"`(?:cdc_assets_tests/)?((?:[a-z_]+/)*test_[a-z_]+\.py)(?:::(\w+))?`")


@documents
def test_tests_that_documents_name_exist(document: Path) -> None:
    tests = ROOT / "cdc_assets_tests"
    for file, name in PLACES.findall(document.read_text()):
        found = [
            path for path in (ROOT / file, tests / file, tests / "unit" / file, *tests.rglob(file)) if path.exists()
        ]
        assert found, file
        assert not name or f"def {name}(" in found[0].read_text(), f"{file}::{name}"


WHERE = cells((ROOT / "docs" / "contributing.md").read_text(), "Where do I change …?", columns=(2, 3))


def test_the_answers_of_where_to_change_something_exist() -> None:
    """Modules and folders by their path, a name behind a module stands in it."""
    folders = (ROOT / "cdc_assets", ROOT, ROOT / "cdc_assets_tests")
    paths = [text for text in WHERE if re.fullmatch(r"[a-z_]+(/[a-z_]+)*(/|\.py)", text)]
    assert len(paths) >= 20
    for path in paths:
        assert any((folder / path).exists() for folder in folders), path
    text = (ROOT / "docs" / "contributing.md").read_text()
    for path, name in re.findall(r"`([a-z_/]+\.py)`: `(\w+)`", text):
        assert re.search(rf"(def|class) {name}\b", (ROOT / "cdc_assets" / path).read_text()), f"{path}: {name}"


GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()


def names_in_code() -> set[str]:
    """Names of all modules, classes, functions, arguments and variables; and words of texts."""
    found: set[str] = set()
    for path in (ROOT / "cdc_assets").rglob("*.py"):
        with path.open("rb") as file:
            found |= {token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.NAME}
        found.add(path.stem)
    return found


def test_terms_of_the_glossary_are_those_of_the_code() -> None:
    rows = [
        line.split("|") for line in GLOSSARY.splitlines() if line.startswith("| ") and not line.startswith("| Term")
    ]
    known = names_in_code()
    texts = {"gap", "failed", "low"}  # values of a status, a field
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[3])}
    assert 25 < len(rows) <= 40
    assert all(row[4].strip() for row in rows), "each has its name elsewhere, or a dash"
    assert len(named) > 25
    assert not named - known - texts
