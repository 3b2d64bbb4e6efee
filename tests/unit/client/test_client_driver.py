"""The performer of a member machine, without a node."""

import asyncio
import gc
import warnings

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig, load
from muster.client.members import events as ev
from muster.client.members.consumer_member import RequestedSubscription
from muster.client.membership.member_driver import ConsumerParticipation, MemberDriver


def test_a_call_that_is_given_up_before_it_began_leaves_nothing_behind() -> None:
    async def story() -> int:
        config = load(ConsumerConfig, {"group.id": "g", "bootstrap.servers": "127.0.0.1:1"}, {})
        transport = Transport(config)
        driver = MemberDriver(
            transport,
            GroupCalls(transport, "g"),
            config,
            ConsumerParticipation(RequestedSubscription(frozenset({"t"}))),
            lambda: None,
        )
        driver.send(ev.Start())
        begun = len(asyncio.all_tasks()) - 1
        await driver.abort()
        await transport.close()
        return begun

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert asyncio.run(story()) > 0
        gc.collect()
    assert [str(warning.message) for warning in caught if "never awaited" in str(warning.message)] == []
