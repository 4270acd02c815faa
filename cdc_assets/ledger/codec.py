"""State values as JSON data and back: LSNs and times are text, tables lists of three names, dataclasses objects."""

from datetime import datetime
from typing import Any, TypeVar

import cattrs

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn

T = TypeVar("T")

_CONVERTER = cattrs.Converter(detailed_validation=False)
_CONVERTER.register_unstructure_hook(Lsn, str)
_CONVERTER.register_structure_hook(Lsn, lambda text, _: Lsn.parse(text))
_CONVERTER.register_unstructure_hook(datetime, datetime.isoformat)
_CONVERTER.register_structure_hook(datetime, lambda text, _: datetime.fromisoformat(text))
_CONVERTER.register_structure_hook(int | str, lambda value, _: value)
_CONVERTER.register_unstructure_hook(TableId, lambda table: [table.database, table.schema, table.table])
_CONVERTER.register_structure_hook(TableId, lambda names, _: TableId(*names))


def encode(value: Any) -> Any:
    """A state value as JSON data."""
    return _CONVERTER.unstructure(value)


def decode(kind: type[T], data: Any) -> T:
    """Inverse of `encode`; missing fields get their defaults.

    Args:
        kind: type of the value.
        data: output of `encode`.

    Raises:
        ValueError, TypeError, KeyError: the data have another form.
    """
    return _CONVERTER.structure(data, kind)
