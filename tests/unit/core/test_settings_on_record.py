"""What is taken as a setting is read from the log as it was: else all that a group has set is gone with a restart."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.events import AlterSettings
from muster.coordinator.core.model.records import SettingsStored
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.settings.setting import MAX_DEPTH, is_recordable
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.kafka_records import decode_group
from muster.coordinator.runtime.own_records import encode_own


def nested(depth: int) -> JsonValue:
    found: JsonValue = 1
    for _ in range(depth):
        found = {"a": [found]}
    return found


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()))
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


@given(VALUES | st.integers(0, 300).map(nested) | st.integers(0, 4_000).map(lambda n: 10**n))
def test_what_is_taken_is_read_as_it_was(value: JsonValue) -> None:
    if is_recordable(value):
        stored = SettingsStored("g", 1, {"assignor.options": {"x": value}})
        assert decode_group(encode_own(stored)) == stored


@pytest.mark.parametrize(
    "text",
    ['"\\ud800"', '{"\\ud800": 1}', "NaN", "[-Infinity]", "1e999", json.dumps(nested(MAX_DEPTH)), "9" * 30],
)
def test_what_could_not_be_read_again_is_not_taken(text: str) -> None:
    assert not is_recordable(json.loads(text))


@pytest.mark.parametrize("text", ['"\\u0000"', '{"é": [1, 2.5, null, true, "\\ud83d\\ude00"]}', "-9223372036854775808"])
def test_what_can_be_is(text: str) -> None:
    assert is_recordable(json.loads(text))


@pytest.mark.parametrize("value", [nested(30_000), "\ud800", float("nan")], ids=["deep", "half a character", "nan"])
def test_such_a_value_is_refused_and_costs_nobody_anything(value: JsonValue) -> None:
    shard = Shard(Limits(), 0)
    event = AlterSettings(1, "g", {"assignor.options": {"seed": value}}, (), None, validate_only=False, operator="ops")
    ((_, reply),) = shard.step(event, 0).replies
    assert (reply.code, "every reader of JSON" in reply.message) == (ErrorCode.INVALID_CONFIG, True)
    assert shard.state.settings == {}
