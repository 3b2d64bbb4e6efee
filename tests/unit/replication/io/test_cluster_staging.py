"""Staged records at a leader of a cluster: what a decision has appended, and is not committed yet, is not appended
again."""

import asyncio

import pytest

from muster.storage.errors import NotEnoughReplicas
from muster.storage.staging.staging import Staging
from tests.support.led_side import HERE, ORDERS, LedSide, partition, topic
from tests.unit.storage.logs import T0, batch, read_all, values

BATCHES = 8
"""More than a log remembers of a producer."""


def decided(side: LedSide) -> Staging:
    staging = Staging(side.led, files=side.files)
    size = 0
    for number in range(BATCHES):
        size = staging.stage("sink", 0, "a", size, [(ORDERS, batch(b"%d" % number))], T0)
    state = staging.decided("sink", 0, {"a": size})
    staging.save("sink", state)
    staging.adopt("sink", state)
    return staging


def test_what_is_there_and_not_committed_is_not_appended_again() -> None:
    """Readers' high watermark said that nothing was there."""
    side = LedSide(topic(partition()))
    staging = decided(side)
    assert list(staging.carry_out("sink", T0, fresh=True)) == [ORDERS] * BATCHES
    assert list(staging.carry_out("sink", T0, fresh=False)) == [ORDERS], "who carries it out waits for it"
    assert side.log().end_offset == BATCHES


def test_what_could_be_appended_in_part_is_finished_once_enough_are_in_sync() -> None:
    """CL-L2."""

    async def story() -> None:
        side = LedSide(topic(partition()))
        staging = decided(side)
        steps = staging.carry_out("sink", T0, fresh=True)
        for _ in range(6):
            next(steps)
        side.hears(topic(partition(isr=(HERE,), version=1)))
        with pytest.raises(NotEnoughReplicas):
            next(steps)
        side.hears(topic(partition(version=2)))
        assert list(staging.carry_out("sink", T0, fresh=False)) == [ORDERS] * 3
        done = side.requests.commit.flushed(ORDERS)
        await asyncio.sleep(0)
        side.flushes()
        side.follows()
        await done
        assert values(read_all(side.log())) == [b"%d" % number for number in range(BATCHES)]
        await side.requests.close()

    asyncio.run(story())
