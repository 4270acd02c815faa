"""Table-valued functions of the language: GENERATE_SERIES."""

from collections.abc import Callable, Sequence
from typing import Final

from mssql_standin.contract import Relation, RelationColumn, Typed
from mssql_standin.errors import SqlError
from mssql_standin.sql.forms import check_count
from mssql_standin.sqltypes import INTEGER


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
    "GENERATE_SERIES": _generate_series,
}
