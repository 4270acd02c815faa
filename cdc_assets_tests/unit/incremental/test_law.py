"""The law of incremental snapshots: whatever is written meanwhile, however late it is captured, and whatever dies.

`CDC_LAW_EXAMPLES` sets how many runs are tried.
"""

import os
import random
import tempfile

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cdc_assets.core.steps import listening
from cdc_assets_tests.crashes import PowerCutError
from cdc_assets_tests.unit.incremental.weather import Weather
from cdc_assets_tests.unit.signals.world import World, check_law
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

EXAMPLES = int(os.environ.get("CDC_LAW_EXAMPLES", "3"))


@pytest.mark.law
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # runs are threads beside one another: the same seed may run another way
)
@given(seed=st.integers(0, 10**6))
def test_no_read_overtakes_and_the_end_is_the_server_s_state(seed: int) -> None:
    obey_the_law(seed)


def obey_the_law(seed: int) -> None:
    """Ask for a snapshot in bad weather, with power cuts; then look at the topic."""
    chance = random.Random(seed)  # noqa: S311 - a test
    kind = chance.choice(["insert_insert", "insert_delete"])
    with StandIn(databases=(DATABASE,)) as server, tempfile.TemporaryDirectory() as lake:
        world = World(server, lake, watermarking=kind)
        table = world.make("orders", "id int PRIMARY KEY, version int")
        weather = Weather(world, chance, 10**9, agent=True)
        for _ in range(60):
            weather.write()
        world.run("snapshot")
        server.agent.latency_s = chance.choice([0.0, 0.0, 0.02])
        world.signal("s1", "execute-snapshot", data_collections=[str(table)])
        for _ in range(chance.randint(1, 4)):
            weather.left = chance.randint(3, 60)
            with listening(weather):
                try:
                    world.run()
                except PowerCutError:
                    weather.write()
        weather.clear_up()
        world.run()
        assert not world.state().signals[DATABASE].queue
        assert world.reads(table)
        check_law(world, table, weather.rows)
