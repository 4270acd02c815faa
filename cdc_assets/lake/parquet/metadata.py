"""Fields of Parquet's metadata by the names that they have in its specification (`parquet.thrift`), as far as they are used here."""

from enum import IntEnum
from typing import Any

from cdc_assets.lake.parquet.thrift import Struct


class FileMetaData(IntEnum):
    """The footer of a file."""

    SCHEMA = 2
    NUM_ROWS = 3
    ROW_GROUPS = 4


class SchemaElement(IntEnum):
    """A column, or what others are in; the elements of a schema come in depth-first order."""

    TYPE = 1
    REPETITION_TYPE = 3
    NAME = 4
    NUM_CHILDREN = 5


class RowGroup(IntEnum):
    """A part of the rows, and its column chunks."""

    COLUMNS = 1
    TOTAL_BYTE_SIZE = 2
    NUM_ROWS = 3
    FILE_OFFSET = 5
    TOTAL_COMPRESSED_SIZE = 6
    ORDINAL = 7


class ColumnChunk(IntEnum):
    """Where the metadata of a chunk are."""

    FILE_OFFSET = 2
    META_DATA = 3


class ColumnMetaData(IntEnum):
    """What a chunk holds, and where its pages are."""

    TYPE = 1
    ENCODINGS = 2
    PATH_IN_SCHEMA = 3
    CODEC = 4
    NUM_VALUES = 5
    TOTAL_UNCOMPRESSED_SIZE = 6
    TOTAL_COMPRESSED_SIZE = 7
    DATA_PAGE_OFFSET = 9
    INDEX_PAGE_OFFSET = 10
    DICTIONARY_PAGE_OFFSET = 11
    STATISTICS = 12


class Statistics(IntEnum):
    """Of the values of a chunk."""

    NULL_COUNT = 3
    MAX_VALUE = 5
    MIN_VALUE = 6


class PageHeader(IntEnum):
    """What stands before each page."""

    TYPE = 1
    UNCOMPRESSED_PAGE_SIZE = 2
    COMPRESSED_PAGE_SIZE = 3
    DATA_PAGE_HEADER = 5
    DICTIONARY_PAGE_HEADER = 7


class DataPageHeader(IntEnum):
    """Of version 1; a dictionary's header has the first two."""

    NUM_VALUES = 1
    ENCODING = 2
    DEFINITION_LEVEL_ENCODING = 3
    REPETITION_LEVEL_ENCODING = 4


class PageType(IntEnum):
    """Kinds of pages."""

    DATA_PAGE = 0
    DICTIONARY_PAGE = 2


class Encoding(IntEnum):
    """How values are written."""

    PLAIN = 0
    RLE = 3
    RLE_DICTIONARY = 8


class CompressionCodec(IntEnum):
    """How pages are compressed."""

    UNCOMPRESSED = 0
    ZSTD = 6


REQUIRED = 0
"""Repetition type of a column that has no nulls."""


def value_of(struct: Struct, field: IntEnum) -> Any:
    """A field's value: a number, bytes or a struct."""
    return struct[field][1]


def elements_of(struct: Struct, field: IntEnum) -> list[Any]:
    """The elements of a field that is a list."""
    elements: list[Any] = struct[field][1][1]
    return elements
