"""Table-valued functions of the language: STRING_SPLIT and GENERATE_SERIES."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from cdc_assets.standin.contract import Relation, RelationColumn, SessionContext, Typed
from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.sql.convert import implicit
from cdc_assets.standin.sql.forms import check_count
from cdc_assets.standin.sql.literals import Constant
from cdc_assets.standin.sql.runtime import Kernel, builder, call, specification
from cdc_assets.standin.sqltypes import BIGINT, INTEGER, NVARCHAR_MAX, UNICODE, SqlType


def _string_split(values: Sequence[Typed]) -> Relation:
    check_count("STRING_SPLIT", len(values), 2, 3)
    text = implicit(values[0], values[0].type if values[0].type.name in ("varchar", "nvarchar") else NVARCHAR_MAX)
    ordinal = len(values) == 3 and isinstance(values[2], Constant) and values[2].value == 1
    length = text.type.length or 1
    sql_type = SqlType("nvarchar" if text.type.name in UNICODE else "varchar", length, collation=text.type.collation)
    rows = call(specification("split"), [text.sql, values[1].sql])
    columns = [RelationColumn("value", "k1", sql_type, False)]
    if ordinal:
        columns.append(RelationColumn("ordinal", "k2", BIGINT, False))
    return Relation(f"(SELECT value AS k1, key + 1 AS k2 FROM json_each({rows}))", tuple(columns))


@builder("split")
def _build_split(_: Sequence[str]) -> Kernel:
    def run(_: SessionContext, text: Any, separator: Any) -> str:
        if not isinstance(separator, str) or len(separator) != 1:
            raise SqlError(214, "Procedure expects parameter 'separator' of type 'nchar(1)/nvarchar(1)'.")
        return "[]" if text is None else json.dumps(text.split(separator))

    return run


def _generate_series(values: Sequence[Typed]) -> Relation:
    check_count("GENERATE_SERIES", len(values), 2, 3)
    first = values[0].type
    if any(value.type.name not in INTEGER for value in values):
        raise SqlError(
            5373,
            "All the input parameters should be of the same type. Supported types are tinyint, smallint, int, bigint.",
        )
    start, stop = values[0].sql, values[1].sql
    step = values[2].sql if len(values) == 3 else f"(CASE WHEN {start} <= {stop} THEN 1 ELSE -1 END)"
    going = f"(CASE WHEN {step} > 0 THEN k1 + {step} <= {stop} ELSE k1 + {step} >= {stop} AND {step} < 0 END)"
    begin = f"(CASE WHEN {step} > 0 THEN {start} <= {stop} ELSE {start} >= {stop} AND {step} < 0 END)"
    return Relation(
        f"(WITH RECURSIVE series(k1) AS (SELECT {start} WHERE {begin} UNION ALL SELECT k1 + {step} FROM series WHERE {going}) "
        "SELECT k1 FROM series)",
        (RelationColumn("value", "k1", first, False),),
    )


TABLE_FUNCTIONS: Final[dict[str, Callable[[Sequence[Typed]], Relation]]] = {
    "STRING_SPLIT": _string_split,
    "GENERATE_SERIES": _generate_series,
}
