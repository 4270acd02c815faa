"""Which database an offset is of."""

import pytest

from cdc_assets.adoption.offsets import ConnectorOffset
from cdc_assets.adoption.plan import named_offsets
from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import InvalidValueError

OLD, NEW = (ConnectorOffset(Lsn.parse(f"00000027:00000758:000{number}")) for number in (3, 5))


def test_letters_may_be_other_ones() -> None:
    assert named_offsets(["SalesDb"], {"salesdb": OLD, "Other": NEW}) == {"SalesDb": OLD}
    assert named_offsets(["SalesDb"], {"": OLD}) == {"SalesDb": OLD}
    assert named_offsets(["D", "d"], {"D": OLD, "d": NEW}) == {"D": OLD, "d": NEW}
    assert named_offsets(["D"], {"D": OLD, "d": OLD}) == {"D": OLD}


@pytest.mark.parametrize("offsets", [{"D": NEW, "d": OLD}, {"d": OLD, "D": NEW}, {"": OLD, "D": NEW}])
def test_two_offsets_of_one_database_that_differ_are_refused(offsets: dict[str, ConnectorOffset]) -> None:
    with pytest.raises(InvalidValueError, match=r"one offset of database D; these two differ"):
        named_offsets(["D"], offsets)
