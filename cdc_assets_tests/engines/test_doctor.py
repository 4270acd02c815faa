"""`doctor` names what a connector lacks of its database, and what corrects it; the connector then runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.config.engine import engine_config
from cdc_assets.connectors.databases.probe import open_probe
from cdc_assets_tests.engines.captures import properties_of
from cdc_assets_tests.engines.servers import MariaDb, Postgres

pytestmark = pytest.mark.engines


def wrong(folder: Path, properties: dict[str, str]) -> dict[tuple[str, str], Any]:
    """Checks that have failed, by name and object; of the connector alone if that is what they are about."""
    file = folder / "capture.json"
    file.write_text(json.dumps(properties | {"lake.path": str(folder / "lake")}))
    command = [sys.executable, "-m", "cdc_assets.cli.main", "doctor", "--json", "-c", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    results = json.loads(done.stdout)["checks"]
    assert done.returncode == any(result["blocking"] and not result["ok"] for result in results)
    return {(result["check"], result["object"]): result for result in results if not result["ok"]}


def test_what_mysql_lacks(tmp_path: Path) -> None:
    with MariaDb(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key)")
        server.execute("set global binlog_format = 'MIXED'; set global binlog_row_image = 'MINIMAL'")
        server.execute("create user poor@'%' identified by 'secret'; grant select on shop.* to poor@'%'")
        own = properties_of(server, 0) | {"database.user": "poor"}
        signals = {
            "signal.enabled.channels": "file",
            "signal.data.collection": "shop.signals",
            "engine.heap": "900000g",
        }
        found = wrong(tmp_path, own | signals)
        rights = {("privilege", name) for name in ("REPLICATION SLAVE", "REPLICATION CLIENT", "RELOAD")}
        settings = {("binlog_format", "server"), ("binlog_row_image", "server")}
        given = {("incremental snapshots", "signals"), ("signal table", "shop.signals"), ("engine.heap", "memory")}
        assert found.keys() == {*rights, *settings, *given, ("log", "127.0.0.1")}
        assert "never sees its marks" in found["incremental snapshots", "signals"]["actual"]
        server.execute("set global binlog_format = 'ROW'; set global binlog_row_image = 'FULL'")
        for place in rights:
            server.execute(found[place]["remedy"])
        assert not wrong(tmp_path, own)
        assert wrong(tmp_path, own | {"table.include.list": "shop.itmes"}).keys() == {("captured tables", "server")}
        assert wrong(tmp_path, own | {"database.password": "other"}).keys() == {("connection", "127.0.0.1")}


class FilteredMariaDb(MariaDb):
    """It leaves the changes of one database out of its binlog."""

    def prepare(self) -> list[str]:
        return [*super().prepare(), "--binlog-ignore-db=shop,other"]


def test_a_database_that_is_left_out_of_the_binlog_is_named(tmp_path: Path) -> None:
    """Its changes would never come, and the binlog ends where it was read to."""
    with FilteredMariaDb(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key)")
        found = wrong(tmp_path, properties_of(server, 0))
        assert found.keys() == {("binlog", "shop.items")}
        assert "leaves shop out of its binlog" in found["binlog", "shop.items"]["actual"]


def test_a_compressed_binlog_is_named(tmp_path: Path) -> None:
    """The connector passes over what is compressed, and the binlog is read to its end all the same."""
    with MariaDb(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key, note text)")
        own = properties_of(server, 0)
        server.execute("set global log_bin_compress = 1; insert into items values (1, repeat('x', 1000))")
        assert "Write_rows_compressed" in server.execute("show binlog events")
        found = wrong(tmp_path, own)
        assert found.keys() == {("binlog", "shop.items")}
        assert "passes over each compressed change" in found["binlog", "shop.items"]["actual"]
        server.execute("set global log_bin_compress = off")
        assert not wrong(tmp_path, own)


class RelayingMariaDb(MariaDb):
    """It writes what it receives as a replica into its own binlog."""

    def prepare(self) -> list[str]:
        return [*super().prepare(), "--log-slave-updates"]


def test_a_replica_that_keeps_its_source_out_of_its_binlog_is_named(tmp_path: Path) -> None:
    """Changes that it receives would never come, and the binlog ends where it was read to."""
    follow = "change master to master_host = '127.0.0.1', master_port = 1, master_user = 'x'"
    with MariaDb(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key)")
        server.execute("create user some@'%' identified by 'secret'")
        server.execute("grant select, reload, replication slave, replication client on *.* to some@'%'")
        own = properties_of(server, 0)
        assert not wrong(tmp_path, own)
        server.execute(follow)
        found = wrong(tmp_path, own)
        assert found.keys() == {("binlog", "shop.items")}
        assert "keeps the changes of its source out" in found["binlog", "shop.items"]["actual"]
        server.execute("start slave")
        assert wrong(tmp_path, own | {"database.user": "some"}).keys() == found.keys()
    with RelayingMariaDb(tmp_path / "server.log") as server:
        server.execute(f"create table items (id int primary key); {follow}")
        assert not wrong(tmp_path, properties_of(server, 0))


def test_what_postgresql_lacks(tmp_path: Path) -> None:
    with Postgres(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key)")
        server.execute("alter system set wal_level = 'replica'")
        server.without("wal_level")
        server.execute("create role poor login password 'secret'")
        own = properties_of(server, 0) | {"database.user": "poor"}
        own.pop("replica.identity.autoset.values")
        found = wrong(tmp_path, own)
        expected = {
            ("wal_level", "server"),
            ("REPLICATION", "poor"),
            ("publication", "pub0"),
            ("captured tables", "postgres"),
        }
        assert found.keys() == expected
        server.execute("grant select on items to poor")
        table = "postgres.public.items"
        assert wrong(tmp_path, own).keys() == {*expected, ("replica identity", table)} - {
            ("captured tables", "postgres")
        }
        server.execute("alter system set wal_level = 'logical'")
        server.execute("alter system set max_slot_wal_keep_size = '1GB'")
        server.stop()
        server.start()
        server.execute("alter role poor replication; create publication pub0 for all tables")
        server.execute("alter table items replica identity full")
        assert not wrong(tmp_path, own)


def test_a_table_that_is_not_in_the_publication_is_named(tmp_path: Path) -> None:
    """None of its changes would come; partitions are sent as they are, or as the table that has them."""
    with Postgres(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key); create table lines (id int primary key)")
        server.execute("create table parts (id int primary key) partition by range (id)")
        server.execute("create table parts_1 partition of parts for values from (0) to (9)")
        server.execute("create publication pub0 for table items, parts")
        own = properties_of(server, 0, publication__autocreate__mode="disabled")
        found = wrong(tmp_path, own)
        assert found.keys() == {("publication", "postgres.public.lines")}
        assert "ADD TABLE" in found["publication", "postgres.public.lines"]["remedy"]
        server.execute("alter publication pub0 set (publish_via_partition_root = true)")
        assert wrong(tmp_path, own).keys() == found.keys()
        assert not wrong(tmp_path, own | {"publication.autocreate.mode": "filtered"})
        server.execute("alter publication pub0 add table lines")
        assert not wrong(tmp_path, own)


def unsent(properties: dict[str, str]) -> dict[str, str]:
    """Reasons by table, without a process of its own."""
    with open_probe(engine_config(properties | {"lake.path": "lake"})) as probe:
        found = probe.unsent([schema.table for schema in probe.tables()])
    return {table.within_database: why for table, why in found.items()}


def test_a_table_whose_changes_are_sent_under_a_name_that_is_left_out_is_named(tmp_path: Path) -> None:
    """As its partitions', or as those of the table that it belongs to: the connector passes over them, and the slot shows none unread."""
    with Postgres(tmp_path / "server.log") as server:
        server.execute("create table parts (id int primary key) partition by range (id)")
        server.execute("create table parts_1 partition of parts for values from (0) to (9)")
        server.execute("create schema old; create table old.parts_2 partition of parts for values from (9) to (19)")
        server.execute("create table empty (id int primary key) partition by range (id)")
        server.execute("create publication pub0 for all tables")
        own = properties_of(server, 0, publication__autocreate__mode="disabled", schema__include__list="public, old")
        parent, partition = own | {"table.include.list": "public.parts"}, own | {"table.include.list": "public.parts_1"}
        found = wrong(tmp_path, parent)
        assert found.keys() == {("publication", "postgres.public.parts")}
        assert "SET (publish_via_partition_root = true)" in found["publication", "postgres.public.parts"]["remedy"]
        assert "as those of old.parts_2, public.parts_1, which" in unsent(parent)["public.parts"]
        assert "as those of old.parts_2, which" in unsent(own | {"schema.include.list": "public"})["public.parts"]
        assert not unsent(own)
        assert not unsent(partition)
        server.execute("alter publication pub0 set (publish_via_partition_root = true)")
        assert not unsent(parent)
        assert unsent(partition).keys() == {"public.parts_1"}
        assert "as those of public.parts, which the connector leaves out" in unsent(partition)["public.parts_1"]
        assert "SET (publish_via_partition_root = false)" in unsent(partition)["public.parts_1"]
        server.execute("drop publication pub0; create publication pub0 for table parts_1")
        assert "its partitions old.parts_2 are not in the publication" in unsent(parent)["public.parts"]
        filled = {"publication.autocreate.mode": "filtered"}
        assert unsent(parent | filled).keys() == {"public.parts"}
        assert not unsent(partition | filled)
        server.execute("alter publication pub0 set (publish_via_partition_root = true)")
        assert not unsent(parent | filled)


def test_a_publication_that_leaves_out_operations_is_named(tmp_path: Path) -> None:
    """Their changes would never come, and the slot shows none of them as unread; unless the connector is not to have them either."""
    with Postgres(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key)")
        server.execute("create publication pub0 for table items with (publish = 'insert, update')")
        own = properties_of(server, 0, publication__autocreate__mode="filtered")
        found = wrong(tmp_path, own)
        assert found.keys() == {("publication", "postgres.public.items")}
        assert "pub0 leaves out delete, truncate, so" in found["publication", "postgres.public.items"]["actual"]
        assert not wrong(tmp_path, own | {"skipped.operations": "d, t"})
        assert not wrong(tmp_path, own | {"snapshot.mode": "initial_only"})
        assert "leaves out delete, so" in str(wrong(tmp_path, own | {"skipped.operations": "t"}))
        server.execute("alter publication pub0 set (publish = 'insert, update, delete, truncate')")
        assert not wrong(tmp_path, own)


def test_a_publication_that_leaves_out_rows_is_named(tmp_path: Path) -> None:
    """Their changes would never come; `filtered` puts the whole table into it at each start."""
    with Postgres(tmp_path / "server.log") as server:
        server.execute("create table items (id int primary key); create table lines (id int primary key)")
        server.execute("create publication pub0 for table items where (id > 7), lines")
        own = properties_of(server, 0, publication__autocreate__mode="disabled")
        found = wrong(tmp_path, own)
        assert found.keys() == {("publication", "postgres.public.items")}
        assert "pub0 sends only its rows WHERE (id > 7), so" in found["publication", "postgres.public.items"]["actual"]
        assert not wrong(tmp_path, own | {"publication.autocreate.mode": "filtered"})
        server.execute("alter publication pub0 drop table items; alter publication pub0 add table items")
        assert not wrong(tmp_path, own)


def test_a_publication_that_leaves_out_columns_is_named(tmp_path: Path) -> None:
    """No event would have them; generated ones are never sent, and those that the capture is not to have may be missing."""
    with Postgres(tmp_path / "server.log") as server:
        twice = "twice int generated always as (n * 2) stored"
        server.execute(
            f"create table items (id int primary key, n int, note text, {twice}); create table lines (id int primary key)"
        )
        server.execute("create publication pub0 for table items (id, n), lines")
        own = properties_of(server, 0, publication__autocreate__mode="disabled")
        found = wrong(tmp_path, own)
        assert found.keys() == {("publication", "postgres.public.items")}
        assert "pub0 leaves out its columns note, so" in found["publication", "postgres.public.items"]["actual"]
        assert not wrong(tmp_path, own | {"column.exclude.list": "public.items.note"})
        assert not wrong(tmp_path, own | {"publication.autocreate.mode": "filtered"})
        server.execute("alter publication pub0 drop table items; alter publication pub0 add table items")
        assert not wrong(tmp_path, own)
