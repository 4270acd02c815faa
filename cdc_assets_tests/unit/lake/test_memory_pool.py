"""Which allocator Arrow has, and how delta-rs's is set."""

import os
import subprocess
import sys

import pytest

_CODE = "from cdc_assets import build_definitions; import pyarrow; print(pyarrow.default_memory_pool().backend_name)"


@pytest.mark.long
@pytest.mark.parametrize(("given", "expected"), [("", "system"), ("mimalloc", "mimalloc")])
def test_the_system_s_unless_told_otherwise(given: str, expected: str) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    if given:
        environment["ARROW_DEFAULT_MEMORY_POOL"] = given
    done = subprocess.run([sys.executable, "-c", _CODE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


_COMMIT = "from cdc_assets import SparkResource; import os, deltalake; print(os.environ['_RJEM_MALLOC_CONF'])"


@pytest.mark.long
@pytest.mark.parametrize(
    ("given", "expected", "told"),
    [
        (None, "narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0", ""),
        ("no_such_option:1", "no_such_option:1", "no_such_option"),
    ],
)
def test_that_of_delta_rs_gives_back_what_is_freed_unless_told_otherwise(
    given: str | None, expected: str, told: str
) -> None:
    """It complains of an option that it does not know, so it reads this variable and knows ours."""
    environment = {name: text for name, text in os.environ.items() if name != "_RJEM_MALLOC_CONF"}
    if given is not None:
        environment["_RJEM_MALLOC_CONF"] = given
    done = subprocess.run([sys.executable, "-c", _COMMIT], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
    assert told in done.stderr if told else not done.stderr
