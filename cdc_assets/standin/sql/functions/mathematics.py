"""Mathematical functions. Integers and decimals keep their type where SQL Server keeps it."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.sql import numbers
from cdc_assets.standin.sql.convert import family
from cdc_assets.standin.sql.registry import NUMBERS, Call, define
from cdc_assets.standin.sqltypes import DECIMAL, FLOAT, INT, MONEY, MONEY_TYPE, SqlType, Value, decimal_to_stored


def _kept(types: Sequence[SqlType]) -> SqlType:
    """Small integers become int, small money becomes money, text and real become float."""
    first = types[0]
    if first.name in ("bit", "tinyint", "smallint", "int"):
        return INT
    if first.name in MONEY:
        return MONEY_TYPE
    return first if first.name == "bigint" or first.name in DECIMAL else FLOAT


def _whole(types: Sequence[SqlType]) -> SqlType:
    """Type of FLOOR and CEILING: decimals lose their scale."""
    kept = _kept(types)
    return SqlType(kept.name, precision=kept.precision) if kept.name in DECIMAL else kept


def _roomy(types: Sequence[SqlType]) -> SqlType:
    """Type of SIGN and POWER: decimals get all digits."""
    kept = _kept(types)
    return SqlType(kept.name, precision=38, scale=kept.scale) if kept.name in DECIMAL else kept


def _angle(types: Sequence[SqlType]) -> SqlType:
    """Type of DEGREES and RADIANS: decimals get 18 digits behind the point."""
    kept = _kept(types)
    return SqlType(kept.name, precision=38, scale=max(kept.scale, 18)) if kept.name in DECIMAL else kept


def _float(value: Any, source: SqlType) -> float:
    if family(source) in ("integer", "exact"):
        return numbers.to_float(*numbers.scaled_of(value, source))
    return numbers.parse_float(value, source, FLOAT) if isinstance(value, str) else float(value)


def _exact(
    call: Call, compute: Callable[[int, int], tuple[int, int]], approximate: Callable[[float], float]
) -> Callable[[Any], Value]:
    """Apply to exact numbers as (scaled, scale), to others as float."""
    source, result = call.types[0], call.returns

    def run(value: Any) -> Value:
        if family(source) not in ("integer", "exact"):
            return approximate(_float(value, source))
        scaled, scale = compute(*numbers.scaled_of(value, source))
        if result.name in DECIMAL:
            moved = numbers.rescale(scaled, scale, result.scale)
            if abs(moved) >= 10**result.precision:
                raise numbers.overflow("expression", result)
            return decimal_to_stored(moved, result)
        target_scale = 4 if result.name in MONEY else 0
        return numbers.to_integer(numbers.rescale(scaled, scale, target_scale), result, result)

    return run


def _unary(
    name: str, returns: Any, compute: Callable[[int, int], tuple[int, int]], approximate: Callable[[float], float]
) -> None:
    define(name, returns, 1, 1, lambda call, value: _exact(call, compute, approximate)(value), accepts=(NUMBERS,))


def _floor(scaled: int, scale: int) -> tuple[int, int]:
    return scaled // int(10**scale), 0


def _ceiling(scaled: int, scale: int) -> tuple[int, int]:
    return -(-scaled // int(10**scale)), 0


def _sign(number: float) -> float:
    return float((number > 0) - (number < 0))


_unary("ABS", _kept, lambda s, k: (abs(s), k), abs)
_unary("FLOOR", _whole, _floor, lambda x: float(math.floor(x)))
_unary("CEILING", _whole, _ceiling, lambda x: float(math.ceil(x)))
_unary("SIGN", _roomy, lambda s, k: ((s > 0) - (s < 0), 0), _sign)


def _round(call: Call, value: Any, places: int, cut: int = 0) -> Value:
    places = max(-400, min(places, 300))  # beyond that nothing changes, and powers of ten would fill the memory

    def exact(scaled: int, scale: int) -> tuple[int, int]:
        if places >= scale:
            return scaled, scale
        unit = int(10 ** (scale - places))
        if cut:
            return (abs(scaled) // unit * unit * (1 if scaled >= 0 else -1)), scale
        quotient, rest = divmod(abs(scaled), unit)
        rounded = (quotient + (1 if rest * 2 >= unit else 0)) * unit
        return (rounded if scaled >= 0 else -rounded), scale

    def approximate(number: float) -> float:
        if places < -300:
            return 0.0
        factor = 10.0**places
        moved = abs(number) * factor
        if not math.isfinite(moved):
            return number
        whole = math.floor(moved) if cut else math.floor(moved + 0.5)
        return math.copysign(whole / factor, number)

    return _exact(call, exact, approximate)(value)


define("ROUND", _kept, 2, 3, _round, arguments=(None, INT, INT), accepts=(NUMBERS,))


def _finite(compute: Callable[..., float]) -> Callable[..., float]:
    def run(call: Call, *values: Any) -> float:
        try:
            result = compute(*(_float(value, source) for value, source in zip(values, call.types, strict=True)))
        except (ValueError, ZeroDivisionError) as error:
            raise SqlError(3623, "An invalid floating point operation occurred.") from error
        except OverflowError as error:
            raise numbers.overflow("expression", FLOAT) from error
        if not math.isfinite(result):
            raise numbers.overflow("expression", FLOAT)
        return result

    return run


_FLOATS: Final[dict[str, Callable[[float], float]]] = {
    "SQRT": math.sqrt, "EXP": math.exp, "LOG10": math.log10, "SIN": math.sin, "COS": math.cos, "TAN": math.tan,
    "ASIN": math.asin, "ACOS": math.acos, "ATAN": math.atan, "SQUARE": lambda x: x * x, "COT": lambda x: 1 / math.tan(x),
}  # fmt: skip
for _name, _function in _FLOATS.items():
    define(_name, FLOAT, 1, 1, _finite(_function), accepts=(NUMBERS,))
define("LOG", FLOAT, 1, 2, _finite(math.log), accepts=(NUMBERS,))
define("ATN2", FLOAT, 2, 2, _finite(math.atan2), accepts=(NUMBERS,))
define("PI", FLOAT, 0, 0, lambda _: math.pi, nullable=False)


def _power(call: Call, base: Any, exponent: Any) -> Value:
    source, result = call.types[0], call.returns
    power = _float(exponent, call.types[1])
    if family(source) in ("integer", "exact") and power == int(power) and power >= 0:
        scaled, _ = numbers.scaled_of(base, source)
        count = int(power)
        if scaled not in (0, 1, -1) and count > 200:
            raise numbers.overflow("expression", result)
        return _exact(call, lambda s, k: (s**count, k * count), float)(base)
    return _typed(_finite(math.pow)(Call((FLOAT, FLOAT), FLOAT), _float(base, source), power), result)


def _typed(value: float, result: SqlType) -> Value:
    """A computed float as the type of the result; integers cut what is behind the point."""
    if result.name == "float":
        return value
    if result.name in DECIMAL:
        return numbers.to_decimal(numbers.float_to_scaled(value, result.scale, result), result.scale, result, FLOAT)
    scaled = numbers.float_to_scaled(value, 4, result) if result.name in MONEY else int(value)
    return numbers.to_integer(scaled, result, result)


define("POWER", _roomy, 2, 2, _power, accepts=(NUMBERS,))


def _define_angle(name: str, compute: Callable[[float], float]) -> None:
    finite = _finite(compute)
    define(name, _angle, 1, 1, lambda call, value: _typed(finite(call, value), call.returns), accepts=(NUMBERS,))


_define_angle("DEGREES", math.degrees)
_define_angle("RADIANS", math.radians)


def _rand(_: Any, __: Call, seed: int | None = None) -> Value:
    return random.Random(seed).random() if seed is not None else random.random()  # noqa: S311 - RAND is no secret


define("RAND", FLOAT, 0, 1, _rand, True, strict=False, nullable=False, arguments=(INT,))


_WHOLE: Final = frozenset({"integer"})


def _bit_count(_: Call, value: int) -> int:
    return (value & 0xFFFF_FFFF_FFFF_FFFF if value < 0 else value).bit_count()


define("BIT_COUNT", SqlType("bigint"), 1, 1, _bit_count, accepts=(_WHOLE,))
define(
    "LEFT_SHIFT", lambda types: types[0], 2, 2, lambda call, v, n: _shifted(v, n, call.returns),
    arguments=(None, INT), accepts=(_WHOLE,),
)  # fmt: skip
define(
    "RIGHT_SHIFT",
    lambda types: types[0],
    2,
    2,
    lambda call, v, n: _shifted(v, -n, call.returns),
    arguments=(None, INT),
    accepts=(_WHOLE,),
)


def _shifted(value: int, places: int, sql_type: SqlType) -> int:
    """Bits shifted to the left, or to the right by a negative number; those beyond the type's width are lost."""
    bits = numbers.INT_BYTES[sql_type.name] * 8
    value = value << min(places, bits) if places >= 0 else value >> min(-places, bits)
    value &= (1 << bits) - 1
    return value - (1 << bits) if sql_type.name != "tinyint" and value >> (bits - 1) else value
