"""JSON for Kafka is as Jackson writes bytes: characters beyond U+FFFF are two escapes."""

import json

import pyarrow as pa
import pytest

from cdc_assets.publish.forms import JsonForm, escape_pairs, escape_pairs_of
from cdc_assets.typemap.connect import ConnectType, struct


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_only_characters_beyond_the_first_plane_are_escaped(kind: pa.DataType) -> None:
    texts = pa.array(["plain", None, "Zoë 日本", "a 😀 b \U0010ffff", ""], kind)
    escaped = escape_pairs(texts)
    assert escaped.type == kind
    assert escaped.to_pylist() == ["plain", None, "Zoë 日本", r"a \uD83D\uDE00 b \uDBFF\uDFFF", ""]
    assert escape_pairs(texts.slice(0, 3)).to_pylist() == texts.to_pylist()[:3]
    assert json.loads(f'"{escape_pairs_of("😀")}"') == "😀"


def test_values_are_escaped() -> None:
    field = struct("t.Value", [ConnectType("string").to_field("name")]).to_field("value")
    rendered = JsonForm(schema=False, defaults=True).render("t", field, pa.array([{"name": "😀"}], field.type))
    assert rendered.to_pylist() == [r'{"name":"\uD83D\uDE00"}']
