"""The law of retention: whatever dies, mirrors stay as they are, and topics hold every event after the LSN that they tell; those
that are compacted by key also make the table's rows then, and every mirror that is made anew of them.

`CDC_LAW_EXAMPLES` sets how many histories are tried.
"""

import os
import tempfile

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cdc_assets_tests.unit.retention.world import HOURS, World
from cdc_assets_tests.unit.streaming.histories import HAND_OVER, WORK

EXAMPLES = int(os.environ.get("CDC_LAW_EXAMPLES", "3"))
CUT = st.one_of(st.none(), st.integers(1, 14))
STREAM, MIRROR = st.tuples(st.just("stream"), CUT), st.tuples(st.just("mirror"), CUT)
LATER = st.tuples(st.just("later"), st.integers(1, 2 * HOURS))
OTHERS = st.one_of(
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("rebuild"), CUT),
    st.tuples(st.just("cut"), st.integers(0, 5)),
)


@pytest.mark.law
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes: each example writes real tables
)
@given(
    events=st.lists(
        st.one_of(WORK, WORK, STREAM, STREAM, MIRROR, LATER, LATER, OTHERS, HAND_OVER), min_size=6, max_size=24
    ),
    policy=st.sampled_from(["delete", "compact"]),
)
def test_topics_hold_a_suffix_and_mirrors_hold_all(events: list[tuple[str, object]], policy: str) -> None:
    with tempfile.TemporaryDirectory() as path:
        world = World(path, policy=policy)
        world.mirror()
        for what, detail in events:
            if what == "rebuild":
                world.rebuild(detail)  # type: ignore[arg-type]
            elif what == "compact":
                world.compact()
            else:
                getattr(world, what.replace(" ", "_"))(detail)
        world.stream()
        assert not world.mirror()
        world.later(2 * HOURS)
        world.stream()
        world.turn([3])
        world.check()
        if policy == "compact":
            world.rebuild(None)
            world.check()
