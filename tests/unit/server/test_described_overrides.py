"""A group's balance, canary and fences in its description, and a suspended setting: from the rules to what is read."""

import json
from typing import Any

import pytest

from muster.cli.groups import description as command
from muster.client.described import GroupDescription, GroupHolds, GroupSettings
from muster.coordinator.core.model.effects import DescribeReply
from muster.coordinator.core.model.events import (
    AlterSettings,
    ClaimFence,
    ConsumerHeartbeat,
    DescribeGroup,
    DescribeSettings,
    EndCanary,
    Event,
    LoadMeasured,
    StartCanary,
    TimerFired,
    TopicsChanged,
)
from muster.coordinator.core.model.records import SettingsStored
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.observability.read_model.group_mapper import map_group
from muster.coordinator.observability.views.controls import control_lines
from muster.coordinator.observability.views.groups import state_row
from muster.coordinator.observability.views.settings import group_setting_rows
from muster.coordinator.server.services import group_control, group_responses

HOUR_MS = 3_600_000
TOPIC_ID = bytes(15) + b"\1"


class Group:
    """A KIP-848 group of two members, each with two of four partitions."""

    def __init__(self) -> None:
        limits = Limits(consumer_assignment_interval_ms=0, consumer_session_timeout_ms=24 * HOUR_MS)
        self.shard, self.now_ms = Shard(limits, 0), 1_000_000
        self.tell(TopicsChanged({"t": 4}, (), {"t": TOPIC_ID}))
        for member in ("a", "b"):
            self.tell(ConsumerHeartbeat(1, "g", member, 0, None, None, 60_000, ("t",), owned={}))
        for member, owned in (("a", (0, 1, 2, 3)), ("a", (0, 1)), ("b", ()), ("b", (2, 3))):
            epoch = self.shard.state.groups["g"].members[member].epoch  # type: ignore[attr-defined]
            held = {TOPIC_ID: frozenset(owned)} if owned else {}
            self.tell(ConsumerHeartbeat(1, "g", member, epoch, None, None, 60_000, ("t",), owned=held))

    def tell(self, event: Event) -> Any:
        return self.shard.step(event, self.now_ms)

    def set(self, **values: Any) -> None:
        named = {name.replace("_", "."): value for name, value in values.items()}
        self.tell(AlterSettings(1, "g", named, (), None, False, operator="op"))

    def sample(self, *ends: int) -> None:
        """Ten seconds later these are the ends of its logs; everything has been read."""
        self.now_ms = self.shard.deadlines["balance", "g"]
        (asked,) = self.tell(TimerFired(("balance", "g"), self.now_ms)).measures
        rows = (("t", 0, ends, ends),)
        self.tell(LoadMeasured("g", asked.serial, rows, self.now_ms))
        self.tell(LoadMeasured("g", asked.serial, at_ms=self.now_ms, last=True))

    def described(self) -> GroupDescription:
        ((_, reply),) = self.tell(DescribeGroup(2, "g")).replies
        assert isinstance(reply, DescribeReply)
        told = group_control.build_controlled_group("g", reply)
        return map_group(told, "here:1")

    def lines(self) -> list[str]:
        return list(control_lines(self.described().controls))

    def row(self) -> dict[str, Any]:
        row: dict[str, Any] = json.loads(json.dumps(state_row(self.described(), GroupHolds())))
        return row


def test_where_nothing_goes_on_nothing_is_said() -> None:
    group = Group()
    assert group.lines() == []
    assert [group.row()[name] for name in ("held", "canary", "balance", "fences")] == [[], None, None, None]


def test_a_balance_says_who_carries_most_and_how_often_it_would_have_paid() -> None:
    group = Group()
    group.set(balance="act")
    assert group.lines() == ["BALANCE: act; loads are known after two samples"]
    group.sample(0, 0, 0, 0)
    for at in (1, 2):
        group.sample(900 * at, 600 * at, 10 * at, 10 * at)
        assert group.described().controls.balance is not None
    (line,) = group.lines()
    assert line.startswith("BALANCE: act; a carried most, 1.97 times the mean; moves paid in ")
    assert line.endswith(" of 3 evaluations in a row")
    balance = group.row()["balance"]
    assert (balance["mode"], balance["heaviest"], balance["ratio"], balance["rounds"]) == ("act", "a", 1.974, 3)


def test_a_canary_that_runs_is_described_and_balance_says_that_it_rests() -> None:
    group = Group()
    group.set(balance="watch")
    group.tell(StartCanary(1, "g", "range", HOUR_MS, (), 1_000, promotes=True, validate_only=False, operator="op"))
    canary, balance = group.lines()
    assert canary.startswith("CANARY: range in place of uniform: until ")
    assert balance in ("BALANCE: watch; it rests while a canary runs", "BALANCE: watch; a rebalance is under way")
    row = group.row()["canary"]
    assert (row["state"], row["assignor"], row["former"], row["promotes"]) == ("canary", "range", "uniform", True)
    group.tell(EndCanary(1, "g", promote=False, operator="op"))
    assert group.described().controls.canary is None


def test_fences_are_counted_and_the_last_claim_comes_first() -> None:
    group = Group()
    for number, (member, partition) in enumerate((("a", 0), ("b", 2), ("a", 1), ("a", 0))):
        epoch = group.shard.state.groups["g"].generation
        group.now_ms += 1_000
        group.tell(ClaimFence(1, "g", member, "t", partition, epoch, -1, -1, 7_000 + number))
    found = group.described().controls
    assert (found.fences, [fence.partition for fence in found.newest_fences]) == (3, [0, 1, 2])
    assert group.lines()[0].startswith("FENCES: 3 partitions claimed, last t-0 by a at ")
    assert group.lines()[0].endswith("(producer id 7000, epoch 1)")
    told = group.row()["fences"]
    assert (told["count"], told["newest"][0]["producer_epoch"], told["newest"][0]["member_id"]) == (3, 1, "a")


WHY = "member m (c at h, kafka-python 2.2) did not fetch its share of two plans in a row that the coordinator made"


def test_a_suspended_setting_is_said_where_settings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shard = Shard(Limits(), 0)
    shard.state.facts[SettingsStored](shard.state, SettingsStored("g", 3, {"assignor": "lag"}, WHY))
    ((_, reply),) = shard.step(DescribeSettings(1, "g"), 0).replies
    told = group_responses.build_described_settings(reply)  # type: ignore[arg-type]
    assert told.suspended == WHY
    rows = group_setting_rows("g", 3, {"assignor": "lag"}, {"balance": "off"}, told.suspended)
    assert [(row["setting"], row["suspended"]) for row in rows] == [("assignor", WHY), ("balance", None)]
    from muster.cli.groups.control import warn_of_suspended_settings

    warn_of_suspended_settings("g", GroupSettings(3, {}, {}, WHY))
    assert f"assignor of group 'g' is suspended until it is set again: {WHY}." in capsys.readouterr().err
    assert command.control_lines is control_lines
