"""The table of settings of groups: what every entry promises, the shapes of values, and the page that lists them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.core.control.settings_table import SETTINGS
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.kinds.registry import FACTS
from muster.coordinator.core.model.records import SettingsStored
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.settings.setting import GroupScope, Setting
from muster.coordinator.core.settings.shapes import (
    Flag,
    Fraction,
    NameList,
    NodeSetting,
    Options,
    Shape,
    WholeNumber,
    Word,
)

PAGE = Path(__file__).resolve().parents[3] / "docs/control.md"
LIMITS = Limits()
LEAST = NodeSetting[int]("the.least", lambda limits: limits.consumer_heartbeat_interval_ms)


def page_row(setting: Setting[Any]) -> str:
    default = setting.default.name if isinstance(setting.default, NodeSetting) else setting.shape.text(setting.default)
    default = f"`{default}`" if default else "nothing"
    return f"| `{setting.name}` | {setting.shape.allowed} | {default} | {setting.groups.value} | {setting.meaning} |"


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=list(SETTINGS))
def test_an_entry_keeps_what_the_table_promises(setting: Setting[Any]) -> None:
    assert setting.meaning.endswith(".")
    assert "\n" not in setting.meaning
    default = setting.default_of(LIMITS)
    as_json = json.loads(json.dumps(default))
    if default:
        assert setting.shape.of_json(as_json, LIMITS) == default
        assert setting.shape.of_json(setting.shape.of_text(setting.shape.text(as_json)), LIMITS) == default
    assert page_row(setting) in PAGE.read_text(encoding="utf-8"), "the page does not have this row"


@pytest.mark.parametrize(
    ("shape", "text", "value"),
    [
        (WholeNumber(0), "17", 17),
        (WholeNumber(LEAST), "5000", 5_000),
        (Fraction(), "0.25", 0.25),
        (Flag(), "TRUE", True),
        (Flag(), "false", False),
        (Word(), "sticky", "sticky"),
        (Word(("off", "act")), "act", "act"),
        (NameList(), "a, b,", ("a", "b")),
        (NameList(), "", ()),
        (Options(), '{"a": 1}', {"a": 1}),
    ],
)
def test_text_becomes_json_becomes_a_value_and_back(shape: Shape[Any], text: str, value: Any) -> None:
    found = shape.of_text(text)
    assert shape.of_json(found, LIMITS) == value
    assert shape.of_text(shape.text(found)) == found


@pytest.mark.parametrize(
    ("shape", "value", "words"),
    [
        (WholeNumber(1, 9), 0, "is 0; expected a whole number from 1 to 9"),
        (WholeNumber(1, 9), 10, "is 10; expected a whole number from 1 to 9"),
        (WholeNumber(0), True, "is true; expected a whole number"),
        (WholeNumber(0), 1.0, "is 1.0; expected a whole number"),
        (WholeNumber(0), "5", 'is "5"; expected a whole number'),
        (WholeNumber(LEAST), 4_999, r"expected a whole number from 5000 to 2147483647 \(this node's the.least\)"),
        (Fraction(), 1.5, "is 1.5; expected a number from 0 to 1"),
        (Fraction(), True, "is true; expected a number"),
        (Flag(), 1, "is 1; expected true or false"),
        (Word(("off", "act")), "on", 'is "on"; expected one of off, act'),
        (Word(), "", "expected a name"),
        (Word(), "x" * 250, "at most 249 characters"),
        (NameList(), "a", 'is "a"; expected a list of names'),
        (NameList(), ["a", ""], "expected a list of names"),
        (NameList(), ["a,b"], "names without commas"),
        (NameList(), ["a", "a"], "expected each name once"),
        (NameList(most=1), ["a", "b"], "expected at most 1 names"),
        (Options(), {}, "expected a JSON object with an option or more"),
        (Options(), None, "is null; expected a JSON object"),
    ],
)
def test_a_value_of_another_shape_is_refused(shape: Shape[Any], value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        shape.of_json(value, LIMITS)


@pytest.mark.parametrize(
    ("shape", "text", "words"),
    [
        (WholeNumber(1, 9), "five", 'is "five"; expected a whole number, 1 to 9'),
        (Fraction(), "nan", "expected a number from 0 to 1"),
        (Flag(), "on", "expected true or false"),
        (Options(), "{", "is not JSON"),
        (Options(), "[" * 100_000, "is not JSON"),
    ],
)
def test_text_that_is_no_value_is_refused(shape: Shape[Any], text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        shape.of_text(text)


def bounded() -> Setting[int]:
    default = NodeSetting[int]("the.default", lambda limits: limits.consumer_session_timeout_ms)
    return Setting("a.ms", WholeNumber(LEAST), default, GroupScope.EVERY, "A time.")


def stored(value: Any) -> Callable[[ShardState], int]:
    def read(state: ShardState) -> int:
        state.settings["g"] = SettingsStored("g", 1, {"a.ms": value})
        return bounded().of(state, "g")

    return read


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda state: bounded().of(state, "g"), 45_000),
        (stored(6_000), 6_000),
        (stored(4_000), 45_000),
        (stored("text of another version"), 45_000),
    ],
    ids=["not set", "set", "outside the bounds that the node has had since", "of another shape"],
)
def test_what_holds_is_what_is_set_or_else_what_the_node_says(read: Callable[[ShardState], int], value: int) -> None:
    assert read(ShardState(LIMITS, FACTS)) == value
