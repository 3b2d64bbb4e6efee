"""Which assignors may be named, and with what options: the rules are told what is installed, and look for nothing."""

from collections.abc import Mapping

import pytest

from muster.assignors import registry
from muster.assignors.api import JsonValue
from muster.assignors.data.consumer_protocol import Subscription, encode_subscription
from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.events import (
    AlterSettings,
    ConsumerHeartbeat,
    Event,
    JoinGroup,
    Planned,
    RegisterConsumer,
    StartCanary,
    TopicsChanged,
)
from muster.coordinator.core.model.plan import PlanRequest
from muster.coordinator.core.model.types import Limits, Protocol
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode

HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(group: str) -> list[object]:
        raise AssertionError(f"the rules looked for plugins: {group}")

    monkeypatch.setattr(registry, "entry_points", looked)


def answer(event: Event) -> Reply:
    """Of a shard that was told of one installed plugin, and has a KIP-848 group k."""
    shard = Shard(Limits(installed=("mine",)), 0)
    shard.step(TopicsChanged({"t": 2}, (), {"t": bytes(15) + b"\1"}), 0)
    shard.step(ConsumerHeartbeat(1, "k", "m", 0, None, None, 60_000, ("t",), owned={}), 0)
    effects = shard.step(event, 0)
    for asked in effects.plans:  # a plugin is tried before it counts
        effects = (
            shard.step(Planned(asked.group_id, asked.epoch, {}), 0)
            if isinstance(asked, PlanRequest) and asked.trial
            else effects
        )
    ((_, reply),) = effects.replies
    return reply


def setting(**values: JsonValue) -> AlterSettings:
    named: Mapping[str, JsonValue] = {name.replace("_", "."): value for name, value in values.items()}
    return AlterSettings(2, "g", named, (), None, validate_only=True, operator="op")


def canary(word: str) -> StartCanary:
    return StartCanary(2, "k", word, HOUR_MS, (), 1_000, promotes=True, validate_only=True, operator="op")


def classic(word: str) -> JoinGroup:
    said = Protocol("range", encode_subscription(Subscription(version=1, topics=("t",))))
    return JoinGroup(
        request_id=2,
        group_id="g",
        member_id="",
        group_instance_id=None,
        client_id="c",
        client_host="here",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(said,),
        fresh_id="1",
        require_known_member_id=True,
        supports_skip_assignment=True,
        remote_assignor=word,
    )


def central(word: str) -> RegisterConsumer:
    return RegisterConsumer(2, "g", "m", "c", "here", 6_000, ("t",), "", word)


@pytest.mark.parametrize(
    "asks",
    [
        pytest.param(lambda word: setting(assignor=word), id="the setting"),
        pytest.param(lambda word: setting(shadow_assignors=[word]), id="a shadow"),
        pytest.param(canary, id="a canary"),
        pytest.param(classic, id="a classic member"),
        pytest.param(central, id="a central member"),
    ],
)
def test_what_is_installed_is_known_from_the_limits(asks: object) -> None:
    assert callable(asks)
    taken, refused = answer(asks("mine")), answer(asks("yours"))
    assert taken.code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
    assert refused.code in (ErrorCode.INVALID_CONFIG, ErrorCode.UNSUPPORTED_ASSIGNOR)
    assert "'yours'" in refused.message
    assert "mine" in refused.message


DEEP = f"{'[' * 40}1{']' * 40}"


@pytest.mark.parametrize("value", ["NaN", "1e999", '"\\ud800"', DEEP, "9" * 30])
@pytest.mark.parametrize("asks", [canary, lambda word: setting(shadow_assignors=[word])], ids=["canary", "shadow"])
def test_options_that_the_log_could_not_give_back_are_refused(asks: object, value: str) -> None:
    """A plugin takes any JSON; what is not read again as it was would lose the record with all that is in it."""
    assert callable(asks)
    refused = answer(asks(f'mine{{"a": {value}}}'))
    assert (refused.code, "every reader of JSON" in refused.message) == (ErrorCode.INVALID_CONFIG, True)
    assert answer(asks('mine{"a": [1, 2.5, "x"]}')).code is ErrorCode.NONE
