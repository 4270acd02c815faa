"""Events of the types that the recorded ones lack, from a capture of ours, as `golden/rest-*.json` show them.

`CDC_WRITE_GOLDEN=1` writes the files anew; read the difference before committing it.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cdc_assets_tests.contract.source.conftest import DATABASE, Server, drain
from cdc_assets_tests.contract.source.shop import Shop, change

GOLDEN = Path(__file__).parents[2] / "golden"
NAMES = ("rest-read", "rest-create", "rest-update", "rest-delete", "rest-tombstone")
TABLE = """CREATE TABLE dbo.rest (id int NOT NULL PRIMARY KEY, c_real real, c_num numeric(9, 3), c_text text, c_ntext ntext,
c_image image, c_hier hierarchyid, c_name sysname NULL, c_ver rowversion)"""
ROW = "1.1, -12.345, 'text', N'ntext', 0x0102, CAST(0x5B40 AS hierarchyid), N'name'"
NULLS = "NULL, NULL, NULL, NULL, NULL, NULL, NULL"
INSERT = "INSERT INTO dbo.rest (id, c_real, c_num, c_text, c_ntext, c_image, c_hier, c_name) VALUES"
_TIMES = ("ts_ms", "ts_us", "ts_ns")
_MASKED = {**dict.fromkeys(_TIMES, 0), "commit_lsn": "masked", "change_lsn": "masked", "c_ver": "masked"}
"""What another run, or server, gives another value. Null stays null."""


@pytest.fixture
def shop(server: Server, tmp_path: Path) -> Shop:
    server.execute(TABLE, database=DATABASE)
    server.execute(f"{INSERT} (1, {ROW})", database=DATABASE)
    server.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'rest', @role_name = NULL",
        database=DATABASE,
    )
    drain(server)
    shop = Shop(server, tmp_path)
    shop.texts["table.include.list"] = "dbo.rest"
    return shop


def masked(payload: Any) -> Any:
    """Of a payload, what is the same in every run."""
    if not isinstance(payload, dict):
        return payload
    return {
        name: _MASKED[name] if name in _MASKED and value is not None else masked(value)
        for name, value in payload.items()
    }


def document(line: str) -> dict[str, Any]:
    """An event as a golden file holds it."""
    event = json.loads(line)
    event["headers"]["__debezium.context.runId"]["payload"] = "run"
    value = event["value"] and {**event["value"], "payload": masked(event["value"]["payload"])}
    return {"topic": f"shop.{DATABASE}.dbo.rest", "headers": event["headers"], "key": event["key"], "value": value}


def test_events_of_the_other_types(shop: Shop) -> None:
    first = shop.run("capture", "--local")
    assert first.exit_code == 0, first.output
    change(shop, f"{INSERT} (2, {NULLS})")
    change(shop, "UPDATE dbo.rest SET c_real = 2.5 WHERE id = 1")
    change(shop, "DELETE FROM dbo.rest WHERE id = 1")
    assert shop.run("capture", "--local").exit_code == 0
    lines = shop.run("tail", "rest", "--schemas", "--headers").output.splitlines()
    for name, line in zip(NAMES, lines, strict=True):
        path, found = GOLDEN / f"{name}.json", document(line)
        if os.environ.get("CDC_WRITE_GOLDEN"):
            path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        assert json.dumps(found) == json.dumps(json.loads(path.read_text()))


def test_every_file_is_explained() -> None:
    page = (GOLDEN / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in GOLDEN.glob("*.json") if f"`{path.stem}`" not in page] == []
