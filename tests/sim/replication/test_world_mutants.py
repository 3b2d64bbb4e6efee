"""Each mutant that the contract below names (docs/design/cluster.md, "Proof by simulation") is caught: here, or where
this table says."""

import importlib
from typing import Any

import pytest

from tests.sim.replication.abstract import mutants as of_one_unit
from tests.sim.replication.mutants import MUTANTS
from tests.sim.replication.run import run_seed
from tests.sim.replication.test_unit_schedules import CAUGHT
from tests.sim.replication.test_unit_stories import STORIES
from tests.sim.replication.weather import Weather
from tests.unit.replication.protocol.test_node_replicas import (
    test_a_copy_that_the_cluster_does_not_know_is_kept_and_named as kept_as_stray,
)

pytestmark = pytest.mark.sim

SEEDS = 60
"""At most, after the one that is known to catch it: which one it is changes with every draw of a world."""


def weather(*kinds: str, **more: Any) -> Weather:
    """Short and hard."""
    return Weather(**{"fault_every_ms": 900, "lasts_ms": 12_000, "kinds": kinds, **more})


MOVES = ("elect", "elect", "kill", "bounce", "cut")
POSITIONS: dict[str, Any] = {"fault_every_ms": 4_000, "lasts_ms": 8_000, "ids": 3, "positions": True, "move_rate": 0.1}
CUT_OFF = ("cut", "cut", "freeze", "client cut", "one way", "kill")

WORLD: dict[str, tuple[int, Weather]] = {
    "ack before the flush": (0, weather("power", "all power", "freeze")),
    "directory id ignored": (17, weather("disk", "bounce", "kill")),
    "bounced node not treated as dead first": (18, weather("disk", "bounce", "freeze")),
    "state told before it is written": (6, weather("away", "zookeeper cut", "kill", "freeze")),
    "loss of power ignored": (0, weather("power", "all power", "kill", hasty=True)),
    "loss of power forgotten at once": (33, weather("power", "all power", "bounce", hasty=True)),
    "cost of an unclean election not counted": (1, weather("kill", "freeze", "disk", unclean=True)),
    "what was asked for is not taken away": (4, weather("elect", "kill")),
    "one half of a shard elected": (0, weather("elect", "kill")),
    "handover never ends": (1, weather("elect", "bounce")),
    "elected anew again and again": (0, weather("reassign", "reassign", "kill", "away")),
    "moved before the others have it": (20, weather("reassign", "reassign", "disk", "kill", "power")),
    "data before its addition is committed": (2, weather("kill", fault_every_ms=6_000, ids=4, dark_rate=0.04)),
    "coordinator epoch 0 in markers": (
        2,
        weather("elect", fault_every_ms=4_000, ids=4, levels=(0,), late_markers=0.5, stall_rate=0.1),
    ),
    "timeout while nobody is heard": (2, weather("elect", "kill", "bounce", ids=4, dark_rate=0.1)),
    "the fence is given to a client": (7, weather("elect", "kill", "bounce", ids=4, stall_rate=0.1)),
    "a repeated commit is not known again": (0, weather("lossy", "client cut", "kill", ids=4, levels=(2,))),
    "a new coordinator forgets what waits": (0, weather(*MOVES, **POSITIONS)),
    "positions' marker at an old leader counts": (0, weather(*MOVES, **POSITIONS)),
    "positions commit after a move": (0, weather(*MOVES, **POSITIONS)),
    "a standby passes markers over": (0, weather(*MOVES, **POSITIONS)),
    "timers run without the lease": (1, weather(*CUT_OFF, groups=2, session_ms=1_500)),
    "answers before they are committed": (14, weather("freeze", "cut", "power", "all power", groups=2)),
}
"""The seed to begin with and its weather. Which checker is the first to see it is a matter of the draws."""

STORY = {"delete what the image does not name": kept_as_stray}

UNIT, WALK = "tests.sim.replication.abstract.mutants", "tests.unit.replication.protocol.test_controller_walk"
CONTRACT: dict[str, tuple[str, str]] = {
    "ack before the flush": ("world", "ack before the flush"),
    "HW moves below min": (UNIT, "watermark moves below min"),
    "HW without those asked to join": (UNIT, "watermark without those asked to join"),
    "join before e's start": (UNIT, "join before the epoch's start"),
    "shrink before it is confirmed": (UNIT, "shrink before it is confirmed"),
    "no lease below min ignored": (UNIT, "lease below min"),
    "lease base = time of receipt": (UNIT, "lease from the receipt of a fetch"),
    "new leader does not wait": (UNIT, "new leader does not wait"),
    "L1 left out": (UNIT, "epoch not marked before the first record"),
    "F5 cut to own HW": (UNIT, "cut to the own watermark"),
    "directory id ignored": ("world", "directory id ignored"),
    "dirs rewritten on return": (UNIT, "directories rewritten on return"),
    "bounced node not treated as dead first": ("world", "bounced node not treated as dead first"),
    "node epoch ignored in Fetch": (UNIT, "node epoch ignored in fetch"),
    "controller epoch not checked in the multi": (WALK, "Unchecked"),
    "state told before it is written": ("world", "state told before it is written"),
    "timers running without a lease": ("world", "timers run without the lease"),
    "delete what the image does not name": ("story", "delete what the image does not name"),
}
"""By the contract's words: in which table, or test, under which name."""


@pytest.mark.parametrize("mutant", WORLD)
def test_without_the_rule_a_checker_finds_it(mutant: str) -> None:
    first, drawn = WORLD[mutant]
    with MUTANTS[mutant]():
        caught = next((seed for seed in (first, *range(SEEDS)) if run_seed(seed, drawn).violation), None)
    assert caught is not None
    assert not run_seed(caught, drawn).violation, "the checkers find fault with honest nodes as well"


@pytest.mark.parametrize("mutant", STORY)
def test_without_the_rule_its_story_ends_badly(mutant: str) -> None:
    story: Any = STORY[mutant]
    story()
    with MUTANTS[mutant](), pytest.raises(AssertionError):
        story()


def test_each_mutant_of_the_contract_is_caught_somewhere() -> None:
    assert set(MUTANTS) == {*WORLD, *STORY}
    for table, name in CONTRACT.values():
        if table == "world":
            assert name in WORLD
        elif table == "story":
            assert name in STORY
        elif table == UNIT:
            assert name in of_one_unit.MUTANTS
            assert name in {*CAUGHT, *STORIES}
        else:
            assert hasattr(importlib.import_module(table), name)
