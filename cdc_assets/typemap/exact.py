"""Which event forms hold less of a value than the server compares.

Two keys that differ for SQL Server must differ in events, or two rows become one for whoever applies them: in a mirror, in a
compacted topic, in a consumer's table. Other columns may be coarser, as the settings want it.
"""

import pyarrow as pa

from cdc_assets.core.schema import Column
from cdc_assets.typemap.decimals import DECIMALS, precision_and_scale
from cdc_assets.typemap.mapping import fraction_digits

_FRACTION = {"Timestamp": 3, "Time": 3, "MicroTimestamp": 6, "MicroTime": 6}
"""Digits of fractional seconds that a form holds; all others hold every digit."""
_DOUBLE_DIGITS = 15
"""Decimal digits of which each value has a double of its own."""


def coarse_by(column: Column, field: pa.Field) -> str:
    """The property that makes event values coarser than the column; empty if each value has its own.

    Args:
        field: of the column in events, with the metadata that names its form.
    """
    form = (field.metadata or {}).get(b"connect.name", b"").decode().rpartition(".")[2]
    if fraction_digits(column) > _FRACTION.get(form, 7):
        return "time.precision.mode"
    if column.type_name in DECIMALS and pa.types.is_floating(field.type):
        return "decimal.handling.mode" if precision_and_scale(column)[0] > _DOUBLE_DIGITS else ""
    return ""


def exact_setting(column: Column) -> str:
    """The setting with which events hold each value of a column that has a fraction of a second or decimals."""
    return "decimal.handling.mode=precise" if column.type_name in DECIMALS else "time.precision.mode=isostring"
