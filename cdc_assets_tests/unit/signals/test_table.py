"""Signals by the signal table, while the capture of that table itself changes."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.errors import ConnectionLostError
from cdc_assets.standin.control import StandIn
from cdc_assets_tests.unit.signals.world import World


def enable_again(world: World) -> None:
    world.sql(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'cdc_signal', "
        "@role_name = NULL, @capture_instance = N'signals_again'"
    )


def test_signals_before_and_behind_a_hand_over_in_one_window(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = World(server, str(tmp_path))
    orders = world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    streaming = replace(world.config.streaming, max_iteration_transactions=0)
    world.config = replace(world.config, streaming=streaming)

    world.signal("before", "execute-snapshot", type="blocking", data_collections=[str(orders)])
    enable_again(world)
    world.signal("behind", "log", message="hand-over")
    world.run()

    assert [text for text in caplog.messages if text == "hand-over" or "'before'" in text] == [
        "hand-over", "Streaming of SalesDb pauses for the snapshot requested by signal 'before'.",
    ]  # fmt: skip
    state = world.state()
    assert {entry.instance for entry in state.tables.values()} == {"dbo_orders", "signals_again"}


def test_signals_of_a_table_whose_capture_has_ended_stop_nothing(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    orders = world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    world.sql(
        "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'cdc_signal', "
        "@capture_instance = N'all'"
    )
    world.sql("INSERT INTO dbo.orders VALUES (1, 1)")
    server.agent.drain()
    world.run()
    assert [event["value"]["op"] for event in world.events(orders)] == ["c"]


def test_signal_in_a_window_behind_which_the_server_was_lost_is_carried_out(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    world = World(server, str(tmp_path))
    world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    streaming = replace(world.config.streaming, idle_timeout_s=2.0, retry_wait_s=0.1)
    world.config = replace(world.config, streaming=streaming)
    world.signal("1", "log", message="first")

    def lose(*_: object) -> None:
        if "first" in caplog.messages and not lost:
            world.signal("2", "log", message="second")
            lost.append(world.state().next_window)
        elif lost and len(lost) < 2 and world.state().next_window > lost[0]:
            lost.append(0)
            raise ConnectionLostError("gone")

    lost: list[int] = []
    monkeypatch.setattr("cdc_assets.run.new_tables.NewTables.join", lose)
    world.run()
    assert len(lost) == 2
    assert [text for text in caplog.messages if text in ("first", "second")] == ["first", "second"]
