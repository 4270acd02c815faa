"""Doctor says which keys events shorten."""

import pytest

from cdc_assets.config.settings import TimeMode
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.mirror.key_checks import check_keys
from cdc_assets_tests.unit.streaming.captures import make_config


@pytest.mark.parametrize(
    ("mode", "policy", "said"),
    [
        ("adaptive", "delete", []),
        ("connect", "delete", ["shortened by time.precision.mode"]),
        ("connect", "compact", ["shortened by time.precision.mode"]),
        ("adaptive", "compact", []),
    ],
)
def test_what_is_said_of_a_key(mode: TimeMode, policy: str, said: list[str]) -> None:
    at = Column("at", "datetime2", 1, nullable=False, scale=7)
    schema = TableSchema(TableId("d", "dbo", "t"), 1, (at, Column("at2", "datetime2", 2, scale=7)), ("at",))
    config = make_config("lake", time_mode=mode, topic_policy=policy, topic_hours=1)
    found = list(check_keys(schema, ["at", "at2"], config))
    assert [result.actual for result in found] == [f"datetime2(7), {text}" for text in said]
    assert all(result.subject == "d.dbo.t.at" and not result.ok and not result.blocking for result in found)
