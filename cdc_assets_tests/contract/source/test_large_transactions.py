"""A transaction that is cut into slices, on a server: the lake holds what it holds of an uncut one."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_assets_tests.contract.source.conftest import DATABASE, Server, drain
from cdc_assets_tests.contract.source.shop import Shop, change

pytestmark = pytest.mark.contract

ROWS = ", ".join(f"({number}, N'n{number}')" for number in range(20))
TRANSACTION = f"""
BEGIN TRAN;
INSERT INTO dbo.orders VALUES {ROWS};
INSERT INTO dbo.lines VALUES {ROWS};
UPDATE dbo.orders SET v = N'x' WHERE id < 15;
UPDATE dbo.lines SET id = id + 100 WHERE id < 5;
DELETE FROM dbo.orders WHERE id > 10;
COMMIT;
UPDATE dbo.lines SET v = N'after'
"""


@pytest.fixture
def shop(server: Server, tmp_path: Path) -> Shop:
    for name in ("orders", "lines"):
        server.execute(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY, v nvarchar(20))", database=DATABASE)
        server.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = ?, @role_name = NULL",
            name,
            database=DATABASE,
        )
    drain(server)
    return Shop(server, tmp_path)


def events(lake: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows of each topic in position order, without the times at which they were made."""
    found = {}
    for name in ("orders", "lines"):
        found[name] = DeltaTable(str(lake / f"shop.{DATABASE}.dbo.{name}")).to_pyarrow_table().to_pylist()
        for row in found[name]:
            for clock in ("ts_ms", "ts_us", "ts_ns"):
                row["value"] = row["value"] and {key: cell for key, cell in row["value"].items() if key != clock}
            row.pop("headers")
    found["transactions"] = DeltaTable(str(lake / "shop.transaction")).to_pyarrow_table().to_pylist()
    return {name: sorted(rows, key=lambda row: str(row["position"])) for name, rows in found.items()}


@pytest.mark.parametrize("parts", ["3", "40"])
def test_a_cut_transaction_reads_as_an_uncut_one(shop: Shop, parts: str) -> None:
    lakes = {"1": shop.folder / "whole", parts: shop.folder / "cut"}
    for lake in lakes.values():
        assert shop.run("capture", "--local", lake__path=str(lake)).exit_code == 0
    change(shop, TRANSACTION)
    for slices, lake in lakes.items():
        settings = {"slices__per__window": slices, "provide__transaction__metadata": "true", "lake__path": str(lake)}
        result = shop.run("capture", "--local", **settings)
        assert result.exit_code == 0, result.output
    whole, cut = (events(lake) for lake in lakes.values())
    assert cut == whole
    assert [row["value"]["status"] for row in cut["transactions"]] == ["BEGIN", "END"] * 2
    assert cut["transactions"][1]["value"]["event_count"] == 20 + 20 + 15 + 10 + 9
    [planned] = [
        row
        for row in DeltaTable(str(lakes[parts] / "shop.__windows")).to_pyarrow_table().to_pylist()
        if row["event"] == "planned" and row["kind"] == "stream"
    ]
    assert '"cuts":[{' in planned["detail"]
