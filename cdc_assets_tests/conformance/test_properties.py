"""The list of the connector's properties is that of the connector."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.conformance
LIST = Path(__file__).parents[1] / "golden" / "connector-properties.txt"


def test_list_is_that_of_the_connector() -> None:
    command = [sys.executable, "-m", "cdc_assets_tests.conformance.properties"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == LIST.read_text()
