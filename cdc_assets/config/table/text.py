"""Properties of events as text, which `cdc-assets tail` prints; the topic tables of the lake do not depend on them."""

from typing import get_args

from cdc_assets.config import kinds
from cdc_assets.config.property import Property
from cdc_assets.config.settings import DecimalFormat, TextFormat

TEXT = (
    Property(
        "value.format",
        kinds.choice(*get_args(TextFormat)),
        "debezium",
        "Records that `tail` prints and `publish` writes: Debezium's key and value, or flat FlinkX (ChunJun) records. "
        "The lake holds the same typed envelopes either way.",
        "text.format",
        note="Only in cdc-assets.",
    ),
    Property(
        "flinkx.paving",
        kinds.BOOLEAN,
        "true",
        "Whether a FlinkX record has a field `before_x` and `after_x` for each column, not objects `before` and `after`.",
        "text.paved",
        note="Specific to cdc-assets; FlinkX calls it pavingData.",
    ),
    Property(
        "flinkx.split",
        kinds.BOOLEAN,
        "false",
        "Whether an update becomes two FlinkX records, `update_before` and `update_after`.",
        "text.split",
        note="Specific to cdc-assets; FlinkX calls it split.",
    ),
    *(
        Property(
            f"{part}.converter.schemas.enable",
            kinds.BOOLEAN,
            "false",
            f"Whether `tail` prints the {part} with its schema, and `publish` writes it so.",
            f"text.{part}_schema",
            note="Kafka Connect's own default is true, and so is that of `publish`; `tail --schemas` asks for both.",
        )
        for part in ("key", "value")
    ),
    *(
        Property(
            f"{part}.converter.replace.null.with.default",
            kinds.BOOLEAN,
            "true",
            f"Whether the column's default replaces a null of the {part}, as Kafka Connect has it (`tail`, `publish`).",
            f"text.{part}_defaults",
        )
        for part in ("key", "value")
    ),
    *(
        Property(
            f"{part}.converter.decimal.format",
            kinds.choice(*get_args(DecimalFormat)),
            "BASE64",
            f"Whether decimals in JSON of the {part} are numbers, or their unscaled bytes as base64 (`tail`, `publish`).",
            f"text.{part}_decimals",
            note="For `precise` decimals. Changed later, the same key has other bytes, and so another partition.",
        )
        for part in ("key", "value")
    ),
)
