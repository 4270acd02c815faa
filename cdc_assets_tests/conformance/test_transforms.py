"""The golden file of transforms is what Java's classes make now."""

import subprocess
import sys
from pathlib import Path

import pytest

from cdc_assets_tests.unit.publish.transforms.trials import GOLDEN

pytestmark = pytest.mark.conformance


def test_the_golden_file_is_what_java_makes(tmp_path: Path) -> None:
    out = tmp_path / "made.json"
    subprocess.run([sys.executable, "-m", "cdc_assets_tests.conformance.transforms", str(out)], check=True, timeout=300)
    assert out.read_text() == GOLDEN.read_text()
