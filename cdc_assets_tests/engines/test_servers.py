"""Real servers under a random workload, and runs that are killed: the lake is the database, event by event."""

import json
import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from cdc_assets_tests.e2e.chains import ENGINE
from cdc_assets_tests.engines.captures import HEARTBEATS, comparable, connector_alone, ours, quiet, sent, topics
from cdc_assets_tests.engines.servers import MariaDb, Postgres, Server

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]
ROUNDS = int(os.environ.get("CDC_ENGINE_ROUNDS", "8"))
SEED = int(os.environ.get("CDC_ENGINE_SEED", "1"))
ROWS = 40


class Shop:
    """A few tables, and what happens to them."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server, self._chance = server, random.Random(seed)  # noqa: S311 - a workload
        self.columns = {"items": ["id", "name", "price", "ratio"], "notes": ["a", "b", "body"]}
        self._next = ROWS
        server.execute(
            "create table items (id int primary key, name varchar(60), price decimal(12,2), ratio double precision)"
        )
        server.execute(
            "create table notes (a int not null, b varchar(10) not null, body varchar(200), primary key (a, b))"
        )
        for number in range(ROWS):
            server.execute(f"insert into items values ({number}, 'n{number}', {number}.25, {number}.5)")
            server.execute(f"insert into notes values ({number}, 'k', 'text {number}')")

    def change(self) -> None:
        """Some transactions; now and then a table changes its columns, or is emptied."""
        for _ in range(12):
            self._transaction()
        if self._chance.random() < 0.6:
            name = f"more{self._next}"
            self._server.execute(f"alter table items add column {name} int")
            self.columns["items"].append(name)
        if len(self.columns["items"]) > 5 and self._chance.random() < 0.5:
            self._server.execute(f"alter table items drop column {self.columns['items'].pop(4)}")
        if self._chance.random() < 0.3:
            self._server.execute("truncate table notes")

    def _transaction(self) -> None:
        chance, statements = self._chance, []
        for _ in range(chance.randrange(1, 8)):
            row, self._next = chance.randrange(self._next), self._next + 1
            statements.append(
                chance.choice(
                    [
                        f"insert into items (id, name, price, ratio) values ({self._next}, 'ü\"{row}', {row}.75, 1e{row % 90})",
                        f"insert into notes values ({self._next}, 'x', null), (-{self._next}, 'y', 'two rows')",
                        f"update items set name = 'again {row}', price = price + 1 where id between {row} and {row + 2}",
                        f"update items set id = {self._next} where id = {row}",
                        f"update notes set b = 'z{row % 7}', body = 'moved' where a = {row}",
                        f"delete from items where id = {row}",
                        f"delete from notes where a between {row} and {row + 1}",
                    ]
                )
            )
        self._server.execute("begin; " + "; ".join(statements) + "; commit")


def folded(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The table that events make: rows by key."""
    rows: dict[str, dict[str, Any]] = {}
    for event in events:
        value = event["value"]
        if value is None:
            continue
        key = json.dumps(event["key"])
        if value["op"] == "t":
            rows.clear()
        elif value["op"] == "d":
            assert rows.pop(key, None) is not None
        else:
            assert value["op"] == "u" or key not in rows, "an event came twice"
            rows[key] = value["after"]
    return rows


def kill_engine_of(process: subprocess.Popen[bytes], after_s: float) -> None:
    """Kill the engine's process, and leave ours alone."""
    time.sleep(after_s)
    for child in psutil.Process(process.pid).children():
        child.kill()


@pytest.mark.parametrize("kind", [MariaDb, Postgres])
def test_the_lake_is_the_database(kind: type[Server], tmp_path: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311 - moments of kills
    with kind(tmp_path / "server.log") as server:
        shop = Shop(server, SEED)
        shared = server.properties() | {
            "topic.prefix": "shop",
            "decimal.handling.mode": "string",
            "max.batch.size": "64",
            "provide.transaction.metadata": "true",
            "heartbeat.interval.ms": "400",
        }
        numbers = [{"database.server.id": str(5400 + side), "slot.name": f"slot{side}"} for side in (0, 1)]
        lake = tmp_path / "lake"
        own = shared | numbers[0] | {"lake.path": str(lake), "engine.batch.ms": "500", "engine.heap": "512m"}
        with connector_alone(tmp_path / "alone", shared | numbers[1] | {"publication.name": "alone"}) as alone:
            quiet(alone, 3, 2 * ROWS)
            assert ours(tmp_path, own, CDC_CRASH_AT="files-written").wait(240) == -9  # all of the snapshot
            assert ours(tmp_path, own).wait(240) == 0
            for number in range(ROUNDS):
                shop.change()
                if number % 3 == 2:
                    process = ours(tmp_path, own)
                    kill_engine_of(process, chance.uniform(4, 12))
                    process.wait(240)
                else:
                    process = ours(tmp_path, own, CDC_CRASH_AT=ENGINE[number % len(ENGINE)])
                    shop.change()
                    process.wait(240)
            assert ours(tmp_path, own, idle=8).wait(240) == 0
            quiet(alone, 4, 1)
            expected = sent(alone)
        found = topics(lake)
        assert found.pop(HEARTBEATS)
        assert expected.pop(HEARTBEATS)  # as many as there was time for
        assert {name: len(events) for name, events in found.items()} == {
            name: len(events) for name, events in expected.items()
        }
        for name, events in expected.items():
            assert [comparable(event) for event in found[name]] == [comparable(event) for event in events], name
        for table, columns in shop.columns.items():
            topic = next(name for name in found if name.endswith(f".{table}"))
            rows = server.rows(table, columns)
            assert len(folded(found[topic])) == len(rows)
            keys = {row[columns[0]] for row in rows}
            assert {row[columns[0]] for row in folded(found[topic]).values()} == keys
