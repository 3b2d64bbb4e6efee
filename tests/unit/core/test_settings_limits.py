"""How much may be set: for one group, and for groups that are nothing but their settings."""

from itertools import count

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.effects import SettingsReply
from muster.coordinator.core.model.events import AlterSettings, OffsetCommit
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.core.requests.settings import MAX_BARE_GROUPS
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode

SESSION = "consumer.session.timeout.ms"
ids = count(1)


def asked(shard: Shard, group_id: str, wanted: dict[str, JsonValue], *unset: str) -> SettingsReply:
    event = AlterSettings(next(ids), group_id, wanted, unset, None, validate_only=False, operator="ops")
    ((_, reply),) = shard.step(event, 0).replies
    assert isinstance(reply, SettingsReply)
    return reply


def test_ten_thousand_groups_may_be_nothing_but_their_settings() -> None:
    shard = Shard(Limits(), 0)
    place = {("t", 0): CommittedOffset(1)}
    shard.step(OffsetCommit(next(ids), "real", "", None, -1, place), 0)
    for number in range(MAX_BARE_GROUPS):
        assert asked(shard, f"bare-{number}", {SESSION: 50_000}).code is ErrorCode.NONE
    refused = asked(shard, "one-more", {SESSION: 50_000})
    assert (refused.code, "10000 groups that do not exist have settings" in refused.message) == (44, True)
    assert "one-more" not in shard.state.settings
    assert asked(shard, "real", {SESSION: 50_000}).code is ErrorCode.NONE, "it has positions as well"
    assert asked(shard, "bare-7", {SESSION: 51_000}).code is ErrorCode.NONE, "it has settings already"
    assert asked(shard, "bare-7", {}, SESSION).code is ErrorCode.NONE
    assert asked(shard, "one-more", {SESSION: 50_000}).code is ErrorCode.NONE


def test_the_settings_of_a_group_take_64_kilobytes_at_most() -> None:
    shard = Shard(Limits(), 0)
    half: JsonValue = {"member.standby": [f"{number:032}" for number in range(1_000)]}
    assert asked(shard, "g", {"assignor.options": half}).code is ErrorCode.NONE
    most: JsonValue = {"member.standby": [f"{number:032}" for number in range(2_000)]}
    refused = asked(shard, "g", {"assignor.options": most})
    assert (refused.code, "at most 65536 may" in refused.message) == (40, True)
    assert shard.state.settings["g"].values == {"assignor.options": half}
