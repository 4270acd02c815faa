"""Collation names ↔ the five bytes on the wire, and the code page of varchar data.

Twenty bits of locale, flags, a version, and a sort id for the SQL_ collations. The code page
decides how the bytes of char and varchar are read (spec standin §11 no. 7).
"""

import struct
from functools import cache
from typing import Final

from mssql_standin.sqltypes import DEFAULT_COLLATION

# start of the name without SQL_: (locale, code page)
_FAMILIES: Final[dict[str, tuple[int, str]]] = {
    "latin1_general": (0x0409, "cp1252"), "french": (0x040C, "cp1252"), "modern_spanish": (0x0C0A, "cp1252"),
    "finnish_swedish": (0x040B, "cp1252"), "danish_norwegian": (0x0406, "cp1252"), "german_phonebook": (0x10407, "cp1252"),
    "icelandic": (0x040F, "cp1252"), "polish": (0x0415, "cp1250"), "czech": (0x0405, "cp1250"),
    "hungarian": (0x040E, "cp1250"), "croatian": (0x041A, "cp1250"), "romanian": (0x0418, "cp1250"),
    "slovak": (0x041B, "cp1250"), "slovenian": (0x0424, "cp1250"), "albanian": (0x041C, "cp1250"),
    "cyrillic_general": (0x0419, "cp1251"), "ukrainian": (0x0422, "cp1251"), "greek": (0x0408, "cp1253"),
    "turkish": (0x041F, "cp1254"), "hebrew": (0x040D, "cp1255"), "arabic": (0x0401, "cp1256"),
    "estonian": (0x0425, "cp1257"), "latvian": (0x0426, "cp1257"), "lithuanian": (0x0427, "cp1257"),
    "vietnamese": (0x042A, "cp1258"), "thai": (0x041E, "cp874"), "japanese": (0x0411, "cp932"),
    "chinese_prc": (0x0804, "cp936"), "korean_wansung": (0x0412, "cp949"), "chinese_taiwan_stroke": (0x0404, "cp950"),
}  # fmt: skip

_SORT_IDS: Final = {
    "sql_latin1_general_cp1_cs_as": 51,
    "sql_latin1_general_cp1_ci_as": 52,
    "sql_latin1_general_cp1_ci_ai": 54,
}

_VERSIONS: Final = {"_90_": 1, "_100_": 2, "_140_": 3, "_160_": 4}


@cache
def collation_bytes(name: str) -> bytes:
    """The five bytes that describe a collation; an empty or unknown name means the default one."""
    folded = (name or DEFAULT_COLLATION).casefold()
    locale, _ = _family(folded)
    padded = f"_{folded}_"
    flags = _flags(padded)
    version = next((number for mark, number in _VERSIONS.items() if mark in padded), 0)
    return struct.pack("<IB", locale | flags << 20 | version << 28, _SORT_IDS.get(folded, 0))


def _flags(padded: str) -> int:
    utf8 = 0x40 if "_utf8_" in padded else 0
    if "_bin2_" in padded:
        return 0x20 | utf8
    if "_bin_" in padded:
        return 0x10 | utf8
    flags = 0x01 if "_ci_" in padded else 0
    flags |= 0x02 if "_ai_" in padded else 0
    flags |= 0x00 if "_ws_" in padded else 0x04
    flags |= 0x00 if "_ks_" in padded else 0x08
    return flags | utf8


def _family(folded: str) -> tuple[int, str]:
    bare = folded.removeprefix("sql_")
    return next((found for start, found in _FAMILIES.items() if bare.startswith(start)), (0x0409, "cp1252"))


@cache
def code_page(name: str) -> str:
    """Python's codec for varchar data of a collation."""
    folded = (name or DEFAULT_COLLATION).casefold()
    return "utf-8" if folded.endswith("_utf8") else _family(folded)[1]


@cache
def codec_of_bytes(collation: bytes) -> str:
    """Python's codec for varchar data that arrives under these five bytes."""
    (packed,) = struct.unpack("<I", collation[:4])
    if packed >> 20 & 0x40:
        return "utf-8"
    locale = packed & 0xFFFFF
    return next((page for known, page in _FAMILIES.values() if known == locale), "cp1252")
