"""Which allocator Arrow has."""

import os
import subprocess
import sys

import pytest

_CODE = "import cdc_assets, pyarrow; print(pyarrow.default_memory_pool().backend_name)"


@pytest.mark.parametrize(("given", "expected"), [("", "system"), ("mimalloc", "mimalloc")])
def test_the_system_s_unless_told_otherwise(given: str, expected: str) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    if given:
        environment["ARROW_DEFAULT_MEMORY_POOL"] = given
    done = subprocess.run([sys.executable, "-c", _CODE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
