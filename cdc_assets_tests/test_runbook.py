"""Every alert, check and failed run has its page in the runbook."""

import re
from pathlib import Path

import pytest
import yaml

from cdc_assets.defs.runbook import HEALTH_PAGES, RUN_FAILED, check_runbook, runbook_url
from cdc_assets.overview.checks.registry import CHECKS

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {path.stem for path in (DOCS / "runbook").glob("*.md")} - {"index"}


def test_every_check_has_a_page() -> None:
    assert {*(check.page for check in CHECKS.values()), *HEALTH_PAGES.values(), RUN_FAILED} <= PAGES


def test_the_index_has_every_check_beside_its_page() -> None:
    rows = (DOCS / "runbook" / "index.md").read_text().splitlines()
    for check in CHECKS.values():
        assert [row for row in rows if f"`{check.name}`" in row and f"({check.page}.md)" in row], check.name


def test_every_rule_for_prometheus_has_a_page() -> None:
    text = (DOCS / "metrics.md").read_text().split("## Alerts", 1)[1]
    block = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    rules = yaml.safe_load(block[1])["groups"][0]["rules"]
    assert len(rules) >= 8
    for rule in rules:
        page = re.fullmatch(r"https://docs\.example\.org/runbook/([a-z-]+)\.html", rule["annotations"]["runbook_url"])
        assert page is not None, rule["alert"]
        assert page[1] in PAGES, rule["alert"]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_page_says_what_to_do(page: str) -> None:
    headings = re.findall(r"^\*\*([A-Z][a-z ]+)\.\*\*", (DOCS / "runbook" / f"{page}.md").read_text(), re.MULTILINE)
    assert headings == ["Symptom", "Command", "Expected", "Fix"]


def test_pages_are_where_the_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CDC_RUNBOOK_URL", raising=False)
    assert check_runbook("lsn_continuity") == "docs/runbook/gap.md"
    assert (DOCS.parent / check_runbook("lsn_continuity")).exists()
    monkeypatch.setenv("CDC_RUNBOOK_URL", "https://docs.example.org/runbook/{page}.html")
    assert runbook_url(RUN_FAILED) == "https://docs.example.org/runbook/run-failed.html"
    assert check_runbook("rows_are_positive") == ""
