"""sp_describe_undeclared_parameters: what type a parameter should have, from where it stands."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cdc_assets.standin.contract import Parameter
from cdc_assets.standin.errors import unsupported

if TYPE_CHECKING:
    from cdc_assets.standin.engine.session import EngineSession


def suggest(session: "EngineSession", text: str) -> Sequence[Parameter]:
    """The parameters in order of their names."""
    raise unsupported("sp_describe_undeclared_parameters")
