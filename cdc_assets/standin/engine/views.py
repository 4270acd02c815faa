"""Views."""

from typing import TYPE_CHECKING

from cdc_assets.standin.engine.reader import Reader
from cdc_assets.standin.errors import unsupported

if TYPE_CHECKING:
    from cdc_assets.standin.engine.interpreter import Interpreter


def refuse(interpreter: "Interpreter", reader: Reader, text: str) -> None:
    """CREATE VIEW."""
    raise unsupported("CREATE VIEW")
