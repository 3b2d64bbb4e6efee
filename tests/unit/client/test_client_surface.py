"""The public names, the lazy import, callbacks and the shared loop."""

import asyncio
import doctest
import importlib
import inspect
import os
import subprocess
import sys
from types import ModuleType

import pytest

import muster.client
from muster.client import aio
from muster.client.calls.transport import channel_options
from muster.client.config import ClientConfig
from muster.client.errors import BY_CODE, IllegalState, Refused, WrongProcess, refusal
from muster.client.members.member_types import LeavePolicy
from muster.client.membership.member_calls import read_cause
from muster.client.membership.ports import Callback, RebalanceListener, parse_leave_policy
from muster.client.twins import shared_loop
from muster.client.types import RebalanceEvent, TopicPartition
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode, error_code_of

DOCUMENTED = [
    "muster.client",
    "muster.client.calls.topic_calls",
    "muster.client.records.partition_state",
    "muster.client.sync.consumer",
    "muster.client.errors",
    "muster.client.membership.ports",
    "muster.client.records.accumulator",
    "muster.client.aio.producer",
    "muster.client.types",
    "muster.client.members.coordinator_link",
    "muster.client.members.subscription",
    "muster.client.members.subscription",
    "muster.client.members.subscription",
    "muster.coordinator.observability.views.formatting",
]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_examples_in_the_documentation_are_true(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("package", [muster.client, aio])
def test_every_public_name_can_be_had(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="Consummer"):
        package.Consummer  # noqa: B018


def test_importing_the_package_loads_no_grpc() -> None:
    script = "import sys, muster.client; sys.exit('grpc' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def methods_of(client: type) -> set[str]:
    """The public ones, also those of a part of the client that is a class of its own."""
    ours = (part for part in client.__mro__ if part.__module__.startswith("muster."))
    return {name for part in ours for name in vars(part) if not name.startswith("_")}


def test_synchronous_and_asynchronous_clients_have_the_same_methods() -> None:
    for name in aio.__all__:
        sync, twin = getattr(muster.client, name.removeprefix("Async")), getattr(aio, name)
        assert methods_of(twin) == methods_of(sync), name


@pytest.mark.parametrize("name", aio.__all__)
def test_twins_take_the_same_and_say_the_same(name: str) -> None:
    sync, twin = getattr(muster.client, name.removeprefix("Async")), getattr(aio, name)
    for method in methods_of(twin):
        ours, theirs = getattr(sync, method), getattr(twin, method)
        wanted, taken = (list(inspect.signature(each).parameters) for each in (theirs, ours))
        assert taken[: len(wanted)] == wanted, method
        # What takes more has more to say.
        assert ours.__doc__ == theirs.__doc__ or not theirs.__doc__ or len(taken) > len(wanted), method
        assert not inspect.iscoroutinefunction(ours), method


def callback(kind: str) -> Callback:
    event = RebalanceEvent(kind, Cause.MEMBER_LEFT, "", 3, 2, "eager", 0)
    return Callback(kind, (TopicPartition("t", 0),), event, None)


def test_listeners_get_the_event_only_if_they_have_room_for_it() -> None:
    heard: list[object] = []
    listener = RebalanceListener(
        on_assign=lambda consumer, partitions: heard.append(partitions),
        on_revoke=lambda consumer, partitions, event: heard.append(event.cause),
    )
    for kind in ("assigned", "revoked", "lost"):
        listener.call(None, callback(kind))
    assert heard == [[("t", 0)], Cause.MEMBER_LEFT, Cause.MEMBER_LEFT]


def test_on_lost_takes_precedence_over_on_revoke() -> None:
    heard: list[str] = []
    listener = RebalanceListener(on_revoke=lambda *_: heard.append("revoke"), on_lost=lambda *_: heard.append("lost"))
    listener.call(None, callback("lost"))
    assert heard == ["lost"]


def test_refusals_get_the_most_telling_type() -> None:
    for code, kind in BY_CODE.items():
        assert type(refusal(code, "X", "")) is kind
    plain = refusal(15, "ERROR_CODE_COORDINATOR_NOT_AVAILABLE", "later")
    assert type(plain) is Refused
    assert plain.retriable
    assert str(plain) == "COORDINATOR_NOT_AVAILABLE: later"


def test_a_code_of_the_future_is_a_general_failure() -> None:
    assert error_code_of(25) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error_code_of(9_999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert read_cause(5) is Cause.MEMBER_LEFT
    assert read_cause(9_999) is Cause.UNSPECIFIED


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (True, LeavePolicy.DEFAULT),
        (False, LeavePolicy.REMAIN),
        ("remain", LeavePolicy.REMAIN),
        ("leave", LeavePolicy.LEAVE),
    ],
)
def test_ways_to_leave(given: bool | str, meant: LeavePolicy) -> None:
    assert parse_leave_policy(given) is meant


def test_an_unknown_way_to_leave_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'slam'.*'remain'"):
        parse_leave_policy("slam")


def test_a_frozen_node_is_noticed_by_pings_of_its_own() -> None:
    options = dict(channel_options(ClientConfig()))
    assert options["grpc.http2.ping_timeout_ms"] == 5_000
    assert options["grpc.http2.max_pings_without_data"] == 0
    assert options["grpc.max_reconnect_backoff_ms"] == 1_000


def test_the_background_loop_refuses_its_own_thread_and_other_processes() -> None:
    background = shared_loop()
    assert shared_loop() is background

    async def nested() -> None:
        background.run(asyncio.sleep(0))

    with pytest.raises(IllegalState, match=r"use muster\.aio"):
        background.run(nested())

    background.pid = os.getpid() + 1
    try:
        with pytest.raises(WrongProcess, match="fork"):
            background.run(asyncio.sleep(0))
    finally:
        background.pid = os.getpid()
