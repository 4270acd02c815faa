"""The key of an asset names its table and what it is of the table; both can be read back."""

from typing import get_args

import dagster as dg
import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.defs.keys import Role, table_and_role
from cdc_assets.defs.translator import CdcTranslator

NAMES = ("orders", "orders.changes", "changes", "a.b", "x.current")


@pytest.mark.parametrize("schema", ["dbo", ""])
def test_each_table_and_role_has_its_own_key_which_names_both(schema: str) -> None:
    keys = {}
    for name in NAMES:
        for role in get_args(Role):
            key = CdcTranslator().asset_key("shop", TableId("D", schema, name), role)
            assert table_and_role(key) == (("shop", "D", *filter(None, [schema]), name), role)
            keys[key] = (name, role)
    assert len(keys) == len(NAMES) * len(get_args(Role))


def test_key_of_an_asset_of_ones_own_names_no_role() -> None:
    for path in (["shop", "D", "dbo", "orders"], ["copy"], ["shop", "windows"], [".changes"], ["a.changes.b"]):
        assert table_and_role(dg.AssetKey(path)) == (tuple(path), None)
