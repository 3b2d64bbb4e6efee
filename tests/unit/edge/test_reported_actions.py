"""Explanations know who changed topics: in the task of the handler, and in tasks that it starts."""

import asyncio
from types import SimpleNamespace

from muster.coordinator.edge.listener_base import ACTING, report_actions
from muster.coordinator.security.access_model import ANONYMOUS, Identity, Principal


def acting_in(call: object) -> str:
    async def handler(_request: object, _call: object) -> str:
        return await asyncio.create_task(read())

    async def read() -> str:
        return ACTING.get()

    wrapped = report_actions(handler, "CreateTopics", "kafka", lambda _action: None)
    return str(asyncio.run(wrapped(SimpleNamespace(topics=[], validate_only=False), call)))


def test_an_action_is_known_by_its_principal_or_else_by_its_client() -> None:
    alice = Identity(Principal("User", "alice"), "10.0.0.1")
    nobody = Identity(ANONYMOUS, "10.0.0.1")
    known = SimpleNamespace(peer_host="10.0.0.1", client_software="kafka-python 2", identity=alice, client_id="tool")
    tool = SimpleNamespace(peer_host="10.0.0.1", client_software="kafka-python 2", identity=nobody, client_id="tool")
    plain = SimpleNamespace(peer_host="", client_software="", identity=nobody)
    assert acting_in(known) == "alice at 10.0.0.1"
    assert acting_in(tool) == "tool at 10.0.0.1"
    assert acting_in(plain) == "a client at an unknown address"
    assert ACTING.get() == ""
