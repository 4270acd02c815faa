"""How `make docs` builds the pages: Sphinx reads the Markdown as it is, and the public names from their docstrings."""

from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx

project = "cdc-assets"
author = "cdc-assets"
version = release = installed("cdc-assets")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["example"]

myst_heading_anchors = 4

default_role = "code"  # single backticks in docstrings
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"cdc-assets {version}"
html_show_sphinx = False
html_copy_source = False

_ROOT = Path(__file__).parent.parent
_ELSEWHERE = {
    "index": "README.md",
    "benchmarks": "benchmarks/README.md",
    "changes": "CHANGELOG.md",
    "standin": "standin/README.md",
}
"""Pages whose text is a file outside this folder, where people look for it first."""
_LINKS = {
    "](benchmarks/README.md": "](benchmarks.md",
    "](../standin/README.md": "](standin.md",
    "](standin/README.md": "](standin.md",
    "](../CHANGELOG.md": "](changes.md",
    "](CHANGELOG.md": "](changes.md",
    "](docs/example/shop/defs/sales/defs.yaml)": "](example.md)",
    "](docs/example)": "](example.md)",
    "](docs/": "](",
}

_NO_SEARCH = "---\nnosearch: true\n---\n"
"""Head of the specifications, which would bury what users look for."""


def _take_from_elsewhere(_app: Sphinx, page: str, source: list[str]) -> None:
    text = source[0]
    if page in _ELSEWHERE:
        contents = text if page == "index" else ""
        text = (_ROOT / _ELSEWHERE[page]).read_text() + "\n" + contents
    for link, here in _LINKS.items():
        text = text.replace(link, here)
    source[0] = f"{_NO_SEARCH}{text}" if page.startswith("spec/") else text


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _take_from_elsewhere)
