"""Signals from outside the log: each acts once, also when the run dies at the worst moment."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.core.signal import Delivery, Signal, SignalChannel, route, signal_of
from cdc_assets.core.steps import listening
from cdc_assets.errors import ConnectionLostError, LakeError, LakeFullError
from cdc_assets.lake.location import Location
from cdc_assets.signals.file import FileChannel
from cdc_assets.signals.inbox import Inbox
from cdc_assets.signals.model import ExecuteSnapshot, StopSnapshot, parse
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.signals.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

WHOLE = {"data-collections": [f"{DATABASE}.dbo.orders"]}


def line(kind: str, **entry: object) -> str:
    return json.dumps({"type": kind, **entry})


# ---- the file ------------------------------------------------------------------------------------------------


def test_whole_lines_act_and_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "signals[1].txt"
    file.write_text(f"nonsense\n{line('log', id='a')}\nhalf a")
    channel: SignalChannel = FileChannel(file)
    assert channel.waiting({})
    with file.open("ab") as writer:  # somebody who has it open when it is taken
        delivery = channel.receive({})
        assert [(signal.id.endswith(":0"), signal.type) for signal in delivery.signals] == [
            (True, "nonsense"), (False, "log"),
        ]  # fmt: skip
        channel.forget(delivery)
        writer.write(b" line\n")
    rest = channel.receive(delivery.reached)
    assert [signal.type for signal in rest.signals] == ["half a line"]
    channel.forget(rest)
    assert not list(tmp_path.iterdir())
    assert channel.receive({}).reached == {}


def test_a_writer_that_keeps_the_file_open_loses_no_line(tmp_path: Path) -> None:
    file = tmp_path / "signals.txt"
    channel, found = FileChannel(file), list[str]()
    reached: dict[str, int] = {}

    def look() -> None:
        nonlocal reached
        delivery = channel.receive(reached)
        found.extend(signal.id for signal in delivery.signals)
        channel.forget(delivery)
        reached = dict(delivery.reached)

    with file.open("a", buffering=1) as writer:
        for number in range(3):
            writer.write(line("log", id=f"kept open {number}") + "\n")
            look()
            look()
        file.write_text(line("log", id="somebody else") + "\n")
        writer.write(line("log", id="the last") + "\n")
    look()
    assert found[:3] == ["kept open 0", "kept open 1", "kept open 2"]
    assert sorted(found[3:]) == ["somebody else", "the last"], "files of their own, in any order"
    assert not list(tmp_path.iterdir())


def test_half_a_line_waits_though_its_end_is_written_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "signals.txt"
    whole = line("log", id="long") + "\n"
    file.write_text(whole[:10])
    channel, reads, writer = FileChannel(file), list[bytes](), file.open("a")

    def read(path: Path) -> bytes:
        reads.append(path.read_bytes())
        if path.suffix == ".taken" and len(reads) == 2:
            writer.write(whole[10:])
            writer.flush()
        return reads[-1]

    monkeypatch.setattr("cdc_assets.signals.file._content", read)
    first = channel.receive({})
    writer.close()
    assert [signal.id for signal in (*first.signals, *channel.receive(first.reached).signals)] == ["long"]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    file = tmp_path / "signals.txt"
    message = "one\u2028two\x85three"
    text = json.dumps({"type": "log", "id": "a", "data": {"message": message}}, ensure_ascii=False)
    file.write_bytes(f"{text}\r\n{line('log', id='b')}\n".encode())
    signals = FileChannel(file).receive({}).signals
    assert [signal.id for signal in signals] == ["a", "b"]
    assert json.loads(signals[0].data or "") == {"message": message}


def test_a_file_that_cannot_be_read_is_reported_to_sensors_too(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"signal\.file"):
        FileChannel(tmp_path).waiting({})


def test_a_pipe_in_its_place_is_not_waited_for_and_nothing_endless_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "signals.txt"
    channel = FileChannel(file)
    os.mkfifo(file)
    for ask in (channel.waiting, channel.receive):
        with pytest.raises(LakeError, match="not an ordinary file"):
            ask({})
    file.unlink()
    os.mkfifo(tmp_path / "signals.txt.abc.taken")
    with pytest.raises(LakeError, match="not an ordinary file"):
        channel.forget(Delivery())
    (tmp_path / "signals.txt.abc.taken").unlink()
    monkeypatch.setattr("cdc_assets.signals.file._MAX_BYTES", 10)
    file.write_text(line("log", id="a") + "\n")
    with pytest.raises(LakeError, match="more than 10"):
        channel.receive({})


def test_a_last_line_without_an_end_counts_if_it_is_whole_or_old(tmp_path: Path) -> None:
    file = tmp_path / "signals.txt"
    file.write_text(line("log", id="a"))
    assert [signal.id for signal in FileChannel(file).receive({}).signals] == ["a"]
    for moment in (time.time() - 60, time.time() + 24 * 3600):  # before the clock was set back
        file.write_text("half a line")
        os.utime(file, (moment, moment))
        delivery = FileChannel(file).receive({})
        assert "half a line" in [signal.type for signal in delivery.signals]
        FileChannel(file).forget(delivery)


def test_lines_of_a_taken_file_keep_their_names_after_a_crash(tmp_path: Path) -> None:
    file = tmp_path / "signals.txt"
    file.write_text(line("log") + "\n" + line("log") + "\n")
    first = FileChannel(file).receive({})
    file.write_text(line("log") + "\n")
    again = FileChannel(file).receive({})
    assert first.signals == again.signals[:2]
    assert len({signal.id for signal in again.signals}) == 3
    assert FileChannel(file).receive(again.reached).signals == ()


def test_what_cannot_be_removed_is_neither_waited_for_nor_recorded_again(tmp_path: Path) -> None:
    file = tmp_path / "signals.txt"
    file.write_text(line("log") + "\n")
    delivery = FileChannel(file).receive({})
    assert FileChannel(file).receive(delivery.reached) == Delivery((), delivery.reached)
    assert not FileChannel(file).waiting(delivery.reached)
    inbox = Inbox(Location(str(tmp_path)), "shop")
    inbox.put(Signal("a", "log", None))
    delivery = inbox.receive({})
    assert inbox.receive(delivery.reached) == Delivery((), delivery.reached)
    assert not inbox.waiting(delivery.reached)


# ---- the inbox -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_the_inbox_keeps_the_order_and_forgets(tmp_path: Path, form: str) -> None:
    inbox = Inbox(Location(form.format(tmp_path)), "shop")
    for number in range(3):
        inbox.put(Signal(f"run/{number}", "log", '{"message": "é"}'))
        time.sleep(0.002)
    assert inbox.waiting({})
    delivery = inbox.receive({})
    assert [signal.id for signal in delivery.signals] == ["run/0", "run/1", "run/2"]
    assert inbox.receive(delivery.reached).signals == ()
    inbox.forget(delivery)
    assert not inbox.waiting({})


def test_requests_come_in_the_order_in_which_they_were_put_whatever_the_clocks_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([10**18, 10**18 - 3600 * 10**9, 10**18 - 3600 * 10**9, 10**18 + 10**9])
    monkeypatch.setattr("time.time_ns", lambda: next(clock))
    (tmp_path / "shop.__signals").mkdir()
    (tmp_path / "shop.__signals" / "foreign.json").mkdir()
    own_ids = ["z", "y", "x", "a"]
    for own_id in own_ids:
        Inbox(Location(str(tmp_path)), "shop").put(Signal(own_id, "log", None))  # each of another process
    assert [signal.id for signal in Inbox(Location(str(tmp_path)), "shop").receive({}).signals] == own_ids


def test_no_request_replaces_another_one_of_its_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = Inbox(Location(str(tmp_path)), "shop")
    monkeypatch.setattr("time.time_ns", lambda: 10**18)
    own_ids = ["run a", "run/a", "b" * 100 + "1", "b" * 100 + "2"]
    for own_id in own_ids:
        inbox.put(Signal(own_id, "log", None))
    assert sorted(signal.id for signal in inbox.receive({}).signals) == sorted(own_ids)


def test_a_file_that_cannot_be_read_holds_up_no_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inbox = Inbox(Location(str(tmp_path)), "shop")
    inbox.put(Signal("a", "log", None))
    folder = tmp_path / "shop.__signals"
    (folder / "0-first.json").mkdir()
    assert inbox.waiting({})
    for _ in range(2):
        delivery = inbox.receive({})
        assert [signal.id for signal in delivery.signals] == ["a"]
    inbox.forget(delivery)
    assert [path.name for path in folder.iterdir()] == ["0-first.json"]
    assert not inbox.waiting({})
    assert caplog.text.count("cannot be read, and is left where it is: 0-first.json") == 1


# ---- what arrives --------------------------------------------------------------------------------------------


def test_what_cannot_be_read_becomes_a_signal_of_no_known_type() -> None:
    assert signal_of("[" * 100_000, "x") == Signal("x", "[" * 100, None)
    assert signal_of(b"\xff", "x") == Signal("x", "�", None)
    assert signal_of('{"type": "log", "data": {"message": "m"}}', "x") == Signal("x", "log", '{"message": "m"}')
    assert signal_of('{"type": "log", "data": "{}", "id": 7}', "x") == Signal("7", "log", "{}")


@pytest.mark.parametrize(
    ("patterns", "databases", "is_general"),
    [
        (["SalesDb.dbo.orders"], ("SalesDb",), False),
        ([r"SalesDb\.dbo\.o.*"], ("SalesDb",), False),
        (["SalesDb[.]dbo[.]orders"], ("SalesDb",), False),
        (["Sales Db.dbo.o.*"], ("Sales Db",), False),
        (["Sales Db.dbo.*"], (), True),
        (["dbo.o.*"], (), True),
        ([r"dbo\.o.*"], (), True),
        ([".*", "SalesDb.dbo.orders"], ("SalesDb",), True),
        (["A.dbo.orders", "B.dbo.orders", "A.dbo.items"], ("A", "B"), False),
        ([".*"], (), True),
        ([".*orders"], (), True),
        (["dbo.orders"], (), True),
        (["(A|B).dbo.orders"], (), True),
    ],
)
def test_a_signal_is_for_the_databases_that_it_names(
    patterns: list[str], databases: tuple[str, ...], is_general: bool
) -> None:
    signal = parse(Signal("a", "execute-snapshot", json.dumps({"data-collections": patterns})))
    assert (signal.databases, signal.is_general) == (databases, is_general)


def test_a_part_of_a_signal_is_what_it_asks_of_one_database() -> None:
    asked = ["A.dbo.orders", "dbo.items", "b.dbo.orders"]

    def part(kind: str, database: str, *, general: bool) -> tuple[str, ...]:
        request = (
            parse(Signal("a", kind, json.dumps({"data-collections": asked}))).part(database, general=general).request
        )
        assert isinstance(request, ExecuteSnapshot | StopSnapshot)
        return request.collections

    for kind in ("execute-snapshot", "stop-snapshot"):
        assert part(kind, "A", general=True) == ("A.dbo.orders", "dbo.items")
        assert part(kind, "B", general=False) == ("b.dbo.orders",)
        assert part(kind, "C", general=True) == ("dbo.items",)
    everything = parse(Signal("a", "stop-snapshot", None))
    assert everything.part("A", general=True) == everything


def test_routing() -> None:
    assert route("b", ["A", "B"]) == ["B"]
    assert route("C", ["A", "B"]) == []


# ---- through a capture ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_signals_act_once_whatever_dies(server: StandIn, tmp_path: Path, cut: int) -> None:
    file = tmp_path / "signals.txt"
    world = World(server, str(tmp_path / "lake"), channels=("file",), file=str(file))
    table = world.make("orders", "id int PRIMARY KEY, version int")
    world.sql("INSERT INTO dbo.orders VALUES (1, 1)")
    server.agent.drain()
    world.run("snapshot")
    inbox = Inbox(Location.of(world.config.lake), "shop")
    inbox.put(Signal("r1", "execute-snapshot", json.dumps(WHOLE)))
    inbox.put(Signal("r1", "execute-snapshot", json.dumps(WHOLE)))
    inbox.put(Signal("r2", "execute-snapshot", json.dumps({"data-collections": ["Elsewhere.dbo.orders"]})))
    file.write_text(line("pause-snapshot") + "\n" + line("resume-snapshot") + "\n")
    with cut_at("signals-recorded", cut):
        try:
            world.run()
        except PowerCutError:
            server.agent.drain()
    world.run()
    assert [row["id"] for row in world.reads(table)] == [1]
    assert [kind for kind, _ in world.notes()].count("TABLE_SCAN_COMPLETED") == 1
    assert not inbox.waiting({})
    assert not list(tmp_path.glob("signals.txt*"))


@pytest.mark.parametrize("cut", range(5))
def test_one_id_acts_as_often_as_it_comes_whatever_dies(server: StandIn, tmp_path: Path, cut: int) -> None:
    file = tmp_path / "signals.txt"
    world = World(server, str(tmp_path / "lake"), channels=("source", "file"), file=str(file))
    table = world.make("orders", "id int PRIMARY KEY, version int")
    world.sql("INSERT INTO dbo.orders VALUES (1, 1), (2, 2)")
    server.agent.drain()
    world.run("snapshot")

    def ask_once_more(kind: str) -> None:
        world.sql("DELETE FROM dbo.cdc_signal")
        world.signal("ad-hoc-1", kind, data_collections=["dbo.orders"])

    for kind in 2 * ("execute-snapshot", "stop-snapshot"):
        ask_once_more(kind)
    blocking = {"type": "blocking", "data-collections": ["dbo.orders"]}
    file.write_text(2 * (line("execute-snapshot", id="ad-hoc-1", data=blocking) + "\n"))
    with cut_at("signals-recorded", cut):
        try:
            world.run()
        except PowerCutError:
            server.agent.drain()
    ask_once_more("execute-snapshot")
    world.run()
    world.run()
    assert [kind for kind, _ in world.notes() if kind != "IN_PROGRESS"] == [
        *2 * ("STARTED", "ABORTED"), "STARTED", "TABLE_SCAN_COMPLETED", "COMPLETED",
    ]  # fmt: skip
    assert [row["id"] for row in world.reads(table)] == [1, 2]
    assert len(world.events(table)) == 2 + 2 * 2 + 2


STOPPED = ["signals-recorded", "reads-committed"]
"""Steps at which the files of a round are recorded, and not yet or already committed."""


@pytest.mark.long
@pytest.mark.parametrize("at", STOPPED)
def test_a_round_that_is_stopped_before_its_commit_is_noted_is_the_last_one(
    server: StandIn, tmp_path: Path, at: str
) -> None:
    world = World(server, str(tmp_path), poll_interval_s=0.0)
    table = world.make("orders", "id int PRIMARY KEY, version int")
    world.sql(f"INSERT INTO dbo.orders VALUES {', '.join(f'({n}, {n})' for n in range(300))}")
    server.agent.drain()
    world.run("snapshot")
    inbox, stopped = Inbox(Location.of(world.config.lake), "shop"), list[str]()

    def stop(name: str) -> None:
        if name == at and (state := world.state().signals.get(DATABASE)) and state.reads and not stopped:
            stopped.append(name)
            inbox.put(Signal("r1", "stop-snapshot", None))
            raise LakeFullError("No space left on device.")

    world.config = replace(world.config, streaming=replace(world.config.streaming, retry_wait_s=0.0))
    world.signal("s1", "execute-snapshot", data_collections=["dbo.orders"])
    with listening(stop):
        world.run()
    world.run()
    assert stopped
    found = [row["id"] for row in world.reads(table)]
    assert 0 < len(found) == len(set(found)) < 300
    assert world.state().signals[DATABASE].reads is None
    assert [kind for kind, _ in world.notes() if kind != "IN_PROGRESS"] == ["STARTED", "ABORTED"]


@pytest.mark.long
def test_a_round_that_was_stopped_before_its_commit_moves_nothing_on(server: StandIn, tmp_path: Path) -> None:
    """What was recorded is committed, but the table that is queued again is read from its start."""
    world = World(server, str(tmp_path), poll_interval_s=0.0)
    table = world.make("orders", "id int PRIMARY KEY, version int")
    world.sql(f"INSERT INTO dbo.orders VALUES {', '.join(f'({n}, {n})' for n in range(300))}")
    server.agent.drain()
    world.run("snapshot")
    again = json.dumps({"data-collections": ["dbo.orders"], "additional-condition": "id < 10"})
    inbox, rounds = Inbox(Location.of(world.config.lake), "shop"), list[str]()

    def meanwhile(name: str) -> None:
        if name == "signals-recorded" and (state := world.state().signals.get(DATABASE)) and state.reads and not rounds:
            rounds.append(name)
            inbox.put(Signal("r1", "stop-snapshot", None))
            time.sleep(0.002)
            inbox.put(Signal("r2", "execute-snapshot", again))
            raise ConnectionLostError("a network that is away")

    world.config = replace(world.config, streaming=replace(world.config.streaming, retry_wait_s=0.0))
    world.signal("s1", "execute-snapshot", data_collections=["dbo.orders"])
    with listening(meanwhile):
        world.run()
    assert rounds
    found = [row["id"] for row in world.reads(table)]
    assert sorted(found[-10:]) == list(range(10))
    assert len(found) == len(set(found)) + 10
    assert [kind for kind, _ in world.notes() if kind != "IN_PROGRESS"] == [
        "STARTED", "ABORTED", "STARTED", "TABLE_SCAN_COMPLETED", "COMPLETED",
    ]  # fmt: skip


HALF = '{"message": "\\ud800", "data-collections": ["dbo.orders\\udc00"]}'


def test_what_no_lake_can_hold_is_skipped_and_told_once(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "signals.txt"
    world = World(server, str(tmp_path / "lake"), channels=("source", "file"), file=str(file))
    world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    world.sql(f"INSERT INTO dbo.cdc_signal VALUES ('row', 'log', '{HALF}')")
    server.agent.drain()
    file.write_text('{"id": "\\ud800", "type": "execute-snapshot\\ud800", "data": null}\n'
                    f'{{"id": "line", "type": "execute-snapshot", "data": {HALF}}}\n')  # fmt: skip
    world.run()
    told = [text for text in caplog.messages if text.startswith("Signal")]
    assert len([text for text in told if "half a surrogate pair" in text]) == 2
    assert len([text for text in told if "not recognized" in text]) == 1
    world.run()
    assert [text for text in caplog.messages if text.startswith("Signal")] == told


@pytest.mark.long
def test_signals_from_outside_go_to_the_databases_they_name_and_are_parsed_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[Signal] = []
    monkeypatch.setattr("cdc_assets.signals.watch.parse", lambda signal: parsed.append(signal) or parse(signal))
    with StandIn(databases=(DATABASE, "Other")) as server:
        server.agent.start()
        world = World(server, str(tmp_path))
        connection = replace(world.config.connection, databases=(DATABASE, "Other"))
        world.config = replace(world.config, connection=connection)
        mine = world.make("orders", "id int PRIMARY KEY, version int")
        server.execute("CREATE TABLE dbo.orders (id int PRIMARY KEY, version int)", database="Other")
        server.execute("EXEC sys.sp_cdc_enable_table N'dbo', N'orders', @role_name = NULL", database="Other")
        for database in connection.databases:
            server.execute("INSERT INTO dbo.orders VALUES (1, 1)", database=database)
        server.agent.drain()
        world.run("snapshot")
        inbox = Inbox(Location.of(world.config.lake), "shop")
        asked = (
            ("one", ["Other.dbo.orders"]),
            ("all", ["dbo.orders"]),
            ("some", ["dbo.ord.*"]),
            ("these", ["Other.dbo.*"]),
            ("none", ["Nowhere.dbo.orders"]),
            ("each", [f"{DATABASE}.dbo.orders", "Other.dbo.orders", "Nowhere.dbo.orders"]),
        )
        for own_id, patterns in asked:
            data = {"data-collections": patterns, "type": "blocking"}
            inbox.put(Signal(own_id, "execute-snapshot", json.dumps(data)))
            time.sleep(0.002)
        world.run()
        told = [text for text in caplog.messages if "database Nowhere does not belong to this capture" in text]
        assert [text.split("'")[1] for text in told] == ["none", "each"]
        assert [signal.id for signal in parsed] == [own_id for own_id, _ in asked]
        state = world.state()
        assert [state.signals[name].handled for name in (DATABASE, "Other")] == [
            ("all", "some", "each"),
            ("one", "all", "some", "these", "each"),
        ]
        assert len(world.events(mine)) == 4
        assert len(world.events(replace(mine, database="Other"))) == 4 + 2
