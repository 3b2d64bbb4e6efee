"""Two consumers under one `consumer_path.id`, and one that comes back, on a virtual clock."""

import asyncio
import logging
from typing import Any

import pytest

from muster.client.members.zookeeper_assignment import STATIC, GroupRegistration
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.consumer_group import ConsumerIdInUse, RegisteredConsumer
from tests.fakes.one_page_zookeeper import SESSION_S, Line, Server, on_virtual_time

READS_T = GroupRegistration({"t": 1}, STATIC)
NAME = layout.consumer_path("g", "g_me")


def consumer(line: Any) -> RegisteredConsumer:
    return RegisteredConsumer(line, "g", lambda _watch: None, name="me")


def test_a_name_that_another_session_holds_is_told_at_once_and_refused_when_it_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        server = Server()
        await consumer(Line(server, 1)).register(READS_T)
        second = asyncio.ensure_future(consumer(Line(server, 2)).register(READS_T))
        with caplog.at_level(logging.WARNING, "muster.client"):
            await asyncio.sleep(0.1)
        assert "g_me is registered in group 'g' by another session" in caplog.text
        assert "waiting up to 12 s for it to go" in caplog.text
        await asyncio.sleep(2 * SESSION_S)
        with pytest.raises(ConsumerIdInUse, match=r"give each consumer a consumer\.id of its own"):
            await second
        assert len(caplog.records) == 1
        assert server.nodes[NAME].owner == 1

    on_virtual_time(story())


def test_the_name_of_one_that_died_is_taken_when_its_session_ends() -> None:
    async def story() -> None:
        server = Server()
        await consumer(Line(server, 1)).register(READS_T)
        second = asyncio.ensure_future(consumer(Line(server, 2)).register(READS_T))
        await asyncio.sleep(SESSION_S)
        del server.nodes[NAME]
        assert await second == "g_me"
        assert server.nodes[NAME].owner == 2

    on_virtual_time(story())


def test_what_an_earlier_session_of_its_own_holds_is_taken_over_at_once() -> None:
    async def story() -> None:
        server = Server()
        line = Line(server, 1)
        registry = consumer(line)
        await registry.register(READS_T)
        line.id = 7  # a new session, before the server has noticed the end of the old one
        before_s = asyncio.get_running_loop().time()
        assert await registry.register(READS_T) == "g_me"
        assert server.nodes[NAME].owner == 7
        assert asyncio.get_running_loop().time() - before_s < 1

    on_virtual_time(story())
