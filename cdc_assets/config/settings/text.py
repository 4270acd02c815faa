"""Settings of events as text."""

from dataclasses import dataclass
from typing import Literal

TextFormat = Literal["debezium", "flinkx"]
DecimalFormat = Literal["BASE64", "NUMERIC"]


@dataclass(frozen=True, slots=True)
class TextSettings:
    """Text form of printed events; the lake does not depend on it.

    Args:
        format: `value.format`: Debezium's JSON, or flat FlinkX records (spec debezium-sqlserver §12.2).
        paved: `flinkx.paving`: fields `before_x` and `after_x` in place of objects.
        split: `flinkx.split`: whether an update becomes two records.
        key_schema: `key.converter.schemas.enable`.
        value_schema: `value.converter.schemas.enable`.
        key_defaults: `key.converter.replace.null.with.default`.
        value_defaults: `value.converter.replace.null.with.default`.
        key_decimals: `key.converter.decimal.format`.
        value_decimals: `value.converter.decimal.format`.
    """

    format: TextFormat = "debezium"
    paved: bool = True
    split: bool = False
    key_schema: bool = False
    value_schema: bool = False
    key_defaults: bool = True
    value_defaults: bool = True
    key_decimals: DecimalFormat = "BASE64"
    value_decimals: DecimalFormat = "BASE64"
