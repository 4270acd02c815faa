"""MERGE."""

from typing import TYPE_CHECKING

from cdc_assets.standin.engine import tree
from cdc_assets.standin.errors import unsupported

if TYPE_CHECKING:
    from cdc_assets.standin.engine.interpreter import Interpreter


def run(interpreter: "Interpreter", statement: tree.Change) -> None:
    """Run a MERGE."""
    raise unsupported("MERGE")
