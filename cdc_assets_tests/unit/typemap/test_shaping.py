"""Masks, hashes and truncation, with the check vectors of spec debezium-sqlserver §4.6."""

import hashlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.config.settings import ColumnRule
from cdc_assets.errors import ConfigurationError
from cdc_assets.typemap.shaping import digest_name, java_serialised, parameters_of, shape_of, truncated
from cdc_assets_tests.unit.envelope.building import column

V1 = ColumnRule("hash", (".*",), algorithm="SHA-256", salt="CzQMA0cB5K")
V2 = ColumnRule("hash_v2", (".*",), algorithm="SHA-256", salt="CzQMA0cB5K")
LONG = "3b225d0696535d66f2c0fb2e36b012c520d396af3dd8f18330b9c9cd23ca714e"


@pytest.mark.parametrize(
    ("rule", "length", "expected"),
    [
        (V1, 255, LONG),
        (V1, 20, LONG[:20]),
        (V1, -1, LONG),
        (V2, 255, "c694718f0d951ba89c4143e0fd3b9cc1d7b6bb5ca2a0b3d485e2bce3e1e81612"),
    ],
)
def test_hashes(rule: ColumnRule, length: int, expected: str) -> None:
    shape = shape_of(column("c", "varchar", length=length), rule)
    assert shape is not None
    assert shape(pa.array(["some_name", None, "some_name"])).to_pylist() == [expected, None, expected]


def test_salt_hash_of_the_connector_s_own_test() -> None:
    shape = shape_of(column("c", "varchar", length=100), ColumnRule("hash", (), algorithm="SHA-256", salt="salt"))
    assert shape is not None
    assert shape(pa.array(["hello"])).to_pylist() == [
        "af5843a0f0e728ab0332c8888b6e1190bfb79e584f0d40538de8f10df6ef29c6"
    ]


def test_java_writes_zero_and_astral_characters_in_its_own_way() -> None:
    assert java_serialised("a\0\U0001f600") == b"\xac\xed\0\5t\0\x09a\xc0\x80\xed\xa0\xbd\xed\xb8\x80"
    assert java_serialised("x" * 70_000)[:13] == b"\xac\xed\0\5|" + (70_000).to_bytes(8, "big")


def test_a_mask_hides_null_too() -> None:
    shape = shape_of(column("c", "nvarchar", length=5), ColumnRule("mask", (), length=3))
    assert shape is not None
    assert shape(pa.array(["secret", None, ""])).to_pylist() == ["***"] * 3
    assert shape_of(column("c", "int"), ColumnRule("mask", (), length=3)) is None


def test_parameters_tell_of_rules() -> None:
    cut = ColumnRule("truncate", (), length=5)
    assert parameters_of(column("c", "varchar", length=6), cut) == (("truncateLength", "5"),)
    assert parameters_of(column("c", "varchar", length=5), cut) == ()
    assert parameters_of(column("c", "varchar", length=-1), cut) == (("truncateLength", "5"),)
    assert parameters_of(column("c", "varchar", length=5), V1) == (("masked", "true"),)


@given(st.lists(st.none() | st.text(max_size=12), max_size=20), st.integers(0, 8))
def test_truncation_counts_as_java_does(values: list[str | None], limit: int) -> None:
    expected = [
        None if one is None else one.encode("utf-16-le")[: 2 * limit].decode("utf-16-le", "ignore") for one in values
    ]
    assert truncated(pa.array(values, pa.string()), limit=limit).to_pylist() == expected


def test_truncation_of_bytes() -> None:
    assert truncated(pa.array([b"12345", None]), limit=2).to_pylist() == [b"12", None]


@pytest.mark.parametrize("name", ["MD5", "SHA-1", "SHA-224", "SHA-256", "SHA-384", "SHA-512", "SHA3-256"])
def test_java_s_digest_names(name: str) -> None:
    assert digest_name(name) in hashlib.algorithms_available


@pytest.mark.parametrize("name", ["SHA-257", "", "SHAKE128"])
def test_unknown_digests_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="SHA-256"):
        digest_name(name)
