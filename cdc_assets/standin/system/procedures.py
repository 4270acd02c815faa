"""The built-in catalogue procedures by folded name."""

from typing import Final

from cdc_assets.standin.contract import Procedure

PROCEDURES: Final[dict[str, Procedure]] = {}
