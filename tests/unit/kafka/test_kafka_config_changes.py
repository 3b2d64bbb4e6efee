"""AlterConfigs and IncrementalAlterConfigs by Kafka's door; the codes are those that a Kafka 4.1.1 answered."""

import asyncio
import json
from typing import Any

import pytest

from muster.coordinator.config import load_settings
from muster.coordinator.core.control.settings_table import SETTINGS
from muster.coordinator.kafka.handlers.configs import describe_settings, value_synonyms
from muster.long_work import TURN
from tests.fakes.memory_files import MemoryFiles
from tests.support.kafka.door import NODE_ID, Door, made, play
from tests.support.turns import turns_of_others
from tests.unit.storage.logs import open_broker

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Step = tuple[str, int, str | None]
SESSION = "consumer.session.timeout.ms"


async def changed(door: Door, kind: int, name: str, *steps: Step, version: int = 1, **more: Any) -> tuple[int, str]:
    """The code and the words for one resource, by IncrementalAlterConfigs."""
    path = "IncrementalAlterConfigsRequest.resources"
    configs = [made(f"{path}.configs", name=key, config_operation=how, value=value) for key, how, value in steps]
    asked = made(path, resource_type=kind, resource_name=name, configs=configs)
    (row,) = (await door.ask("IncrementalAlterConfigs", version, resources=[asked], **more)).responses
    assert (row.resource_type, row.resource_name) == (kind, name)
    return row.error_code, row.error_message or ""


async def replaced(door: Door, kind: int, name: str, version: int = 2, **configs: str | None) -> tuple[int, str]:
    """The same by AlterConfigs."""
    path = "AlterConfigsRequest.resources"
    rows = [made(f"{path}.configs", name=key.replace("__", "."), value=value) for key, value in configs.items()]
    asked = made(path, resource_type=kind, resource_name=name, configs=rows)
    (row,) = (await door.ask("AlterConfigs", version, resources=[asked])).responses
    return row.error_code, row.error_message or ""


async def shown(door: Door, kind: int, name: str, source: int) -> dict[str, str]:
    """The settings that DescribeConfigs shows with this source."""
    asked = made("DescribeConfigsRequest.resources", resource_type=kind, resource_name=name, configuration_keys=None)
    (told,) = (await door.ask("DescribeConfigs", 4, resources=[asked])).results
    assert told.error_code == 0
    return {row.name: row.value for row in told.configs if row.config_source == source}


async def of_topic(door: Door) -> dict[str, str]:
    return await shown(door, TOPIC, "t", 1)


@pytest.mark.parametrize("version", range(2))
def test_steps_set_unset_append_and_take_away(version: int) -> None:
    disk = MemoryFiles()

    async def story(door: Door) -> None:
        async def step(key: str, how: int, value: str | None) -> dict[str, str]:
            assert await changed(door, TOPIC, "t", (key, how, value), version=version) == (0, "")
            return await of_topic(door)

        assert await step("retention.ms", SET, "86400001") == {"retention.ms": "86400001"}
        assert door.broker.log("t", 2).settings.retention_ms == 86400001
        assert await step("retention.ms", DELETE, "anything") == {}
        assert await step("no.such", DELETE, None) == {}
        # The default is delete, to which something is appended.
        assert await step("cleanup.policy", APPEND, "compact") == {"cleanup.policy": "compact,delete"}
        assert await step("cleanup.policy", APPEND, "delete,compact") == {"cleanup.policy": "compact,delete"}
        assert await step("cleanup.policy", SUBTRACT, "delete") == {"cleanup.policy": "compact"}
        assert await step("cleanup.policy", SUBTRACT, "delete") == {"cleanup.policy": "compact"}

    play(story, disk)
    again = open_broker(disk)
    assert again.topic("t").configs == {"cleanup.policy": "compact"}, "it outlives the node"
    again.close()


@pytest.mark.parametrize("version", range(3))
def test_what_alter_configs_does_not_name_is_unset(version: int) -> None:
    async def story(door: Door) -> None:
        assert await replaced(door, TOPIC, "t", version, retention__ms="5", max__message__bytes="9999") == (0, "")
        assert await of_topic(door) == {"retention.ms": "5", "max.message.bytes": "9999"}
        assert await replaced(door, TOPIC, "t", version, retention__ms="6") == (0, "")
        assert await of_topic(door) == {"retention.ms": "6"}
        assert (await replaced(door, TOPIC, "t", version, retention__ms=None))[0] == 42
        assert (await replaced(door, TOPIC, "t", version, no__such="1"))[0] == 40
        assert await of_topic(door) == {"retention.ms": "6"}
        assert await replaced(door, TOPIC, "t", version) == (0, "")
        assert await of_topic(door) == {}

    play(story)


@pytest.mark.parametrize(
    ("kind", "name", "steps", "code", "says"),
    [
        (TOPIC, "t", [("retention.ms", SET, "abc")], 40, "'retention.ms' is 'abc'; expected a whole number"),
        (TOPIC, "t", [("retention.ms", SET, "-5")], 40, "at least -1|from -1"),
        (TOPIC, "t", [("retention.ms", SET, "")], 40, "'retention.ms' is ''"),
        (TOPIC, "t", [("retention.m", SET, "1")], 40, "did you mean 'retention.ms'"),
        (TOPIC, "t", [("retention.ms", SET, None)], 42, "has no value"),
        (TOPIC, "t", [("cleanup.policy", APPEND, None)], 42, "has no value"),
        (TOPIC, "t", [("cleanup.policy", APPEND, "nope")], 40, "'cleanup.policy' is"),
        (TOPIC, "t", [("retention.ms", APPEND, "5")], 40, "Can't APPEND to key retention.ms"),
        (TOPIC, "t", [("no.such", SUBTRACT, "5")], 40, "Can't SUBTRACT to key no.such"),
        (TOPIC, "t", [("retention.ms", 4, "5")], 42, "operation 4"),
        (TOPIC, "t", [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)], 42, "named twice"),
        (TOPIC, "u", [("retention.ms", SET, "5")], 3, "'u'"),
        (TOPIC, "", [("retention.ms", SET, "5")], 42, "no name"),
        (TOPIC, "a b", [("retention.ms", SET, "5")], 17, "a b"),
        (TOPIC, "__consumer_offsets", [("retention.ms", SET, "5")], 17, "internal"),
        (GROUP, "", [("assignor.options", SET, "{}")], 42, "no name"),
        (GROUP, "g", [("share.session.timeout.ms", SET, "50000")], 40, "not a setting of a group"),
        (GROUP, "g", [(SESSION, SET, "44999")], 40, "from 45000 to 60000"),
        (GROUP, "g", [(SESSION, SET, "5e4")], 40, 'is "5e4"'),
        (GROUP, "g", [(SESSION, SET, "")], 40, 'is ""'),
        (GROUP, "g", [(SESSION, SET, None)], 42, "has no value"),
        (GROUP, "g", [(SESSION, APPEND, "1")], 40, f"Can't APPEND to key {SESSION}"),
        (GROUP, "g", [(SESSION, SET, "50000"), ("consumer.heartbeat.interval.ms", SET, "1")], 40, "from 5000"),
        (GROUP, "g", [("assignor.options", SET, "{")], 40, "not JSON"),
        (GROUP, "g", [("assignor.options", SET, " " * 70_000)], 40, "70000 characters"),
        (GROUP, "g", [("assignor.options", APPEND, "{}")], 40, "Can't APPEND"),
        (BROKER, str(NODE_ID), [("log.retention.ms", SET, "5")], 42, "when it starts"),
        (BROKER, "99", [("log.retention.ms", SET, "5")], 42, "no node '99'"),
        (8, str(NODE_ID), [("a.b", SET, "INFO")], 42, "Resource type 8"),
        (16, "m", [("interval.ms", SET, "5000")], 42, "Resource type 16"),
        (0, "x", [], 42, "Resource type 0"),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_a_refused_change_changes_nothing(
    kind: int, name: str, steps: list[Step], code: int, says: str, validate_only: bool
) -> None:
    async def story(door: Door) -> None:
        got, words = await changed(door, kind, name, *steps, validate_only=validate_only)
        assert got == code
        assert any(each in words for each in says.split("|")), words
        assert await of_topic(door) == {}
        assert await shown(door, GROUP, "g", 8) == {}

    play(story)


def test_a_trial_changes_nothing() -> None:
    async def story(door: Door) -> None:
        options = ("assignor.options", SET, '{"max.partitions.per.member": 1}')
        assert await changed(door, TOPIC, "t", ("retention.ms", SET, "5"), validate_only=True) == (0, "")
        assert await changed(door, GROUP, "g", options, validate_only=True) == (0, "")
        assert (await of_topic(door), await shown(door, GROUP, "g", 8)) == ({}, {})

    play(story)


def test_settings_of_a_group() -> None:
    text = '{"max.partitions.per.member": 1}'

    async def story(door: Door) -> None:
        assert (await shown(door, GROUP, "g", 5)).items() >= {"assignor.options": "{}", SESSION: "45000"}.items()
        assert await changed(door, GROUP, "g", ("assignor.options", SET, text)) == (0, "")
        found = await shown(door, GROUP, "g", 8)
        assert json.loads(found["assignor.options"]) == json.loads(text)
        asked = made("DescribeConfigsRequest.resources", resource_type=GROUP, resource_name="g")
        (told,) = (await door.ask("DescribeConfigs", 4, resources=[asked], include_synonyms=True)).results
        rows = {row.name: [(row.name, row.value, row.config_source)] for row in told.configs}
        assert {row.name: [(s.name, s.value, s.source) for s in row.synonyms] for row in told.configs} == rows
        assert rows["assignor.options"] == [("assignor.options", found["assignor.options"], 8)]
        assert rows[SESSION] == [(SESSION, "45000", 5)]
        assert door.driver.shard.state.settings["g"].version == 1
        assert await changed(door, GROUP, "g") == (0, "")
        assert await changed(door, GROUP, "g", ("no.such", DELETE, None)) == (0, "")
        assert await replaced(door, GROUP, "h") == (0, "")
        assert await replaced(door, GROUP, "g") == (0, "")
        assert await shown(door, GROUP, "g", 8) == {}

    play(story)


async def listed(door: Door, *types: int, version: int = 1) -> object:
    """What ListConfigResources says: the code, or names by type."""
    answer = await door.ask("ListConfigResources", version, resource_types=list(types))
    if answer.error_code:
        return answer.error_code
    return [(row.resource_type, row.resource_name) for row in answer.config_resources]


def test_what_has_settings_is_listed_by_type() -> None:
    async def story(door: Door) -> None:
        here = [(LOGGER, str(NODE_ID)), (BROKER, str(NODE_ID)), (TOPIC, "__consumer_offsets"), (TOPIC, "t")]
        assert await listed(door) == here
        assert await listed(door, GROUP) == []
        for name in ("h", "g"):
            assert await changed(door, GROUP, name, ("assignor.options", SET, '{"move.budget": 1}')) == (0, "")
        assert await listed(door) == [(GROUP, "g"), (GROUP, "h"), *here]
        assert await listed(door, GROUP, BROKER, GROUP) == [(GROUP, "g"), (GROUP, "h"), here[1]]
        assert await changed(door, GROUP, "g", ("assignor.options", DELETE, None)) == (0, "")
        assert await listed(door, GROUP) == [(GROUP, "h")]
        assert await listed(door, METRICS) == []
        assert await listed(door, TOPIC, 3) == 35
        assert await listed(door, version=0) == []

    play(story)


def test_groups_whose_shard_is_loading_are_not_passed_over() -> None:
    """Who sees the list would take their settings for defaults."""

    async def story(door: Door) -> None:
        door.driver.loading = True
        assert await listed(door, GROUP) == 14
        assert await listed(door, TOPIC) == [(TOPIC, "__consumer_offsets"), (TOPIC, "t")]

    play(story)


def test_a_shard_that_is_not_served_is_not_available() -> None:
    """Nobody looks a coordinator up for settings, so nobody is told that this one is the wrong one (16)."""

    async def story(door: Door) -> None:
        door.driver.failed = "the disk is full"
        code, words = await changed(door, GROUP, "g", (SESSION, SET, "50000"))
        assert (code, words) == (15, "COORDINATOR_NOT_AVAILABLE: the disk is full")
        assert (await replaced(door, GROUP, "g"))[0] == 15
        assert await listed(door, GROUP) == 15
        asked = made("DescribeConfigsRequest.resources", resource_type=GROUP, resource_name="g")
        of_topic_too = made("DescribeConfigsRequest.resources", resource_type=TOPIC, resource_name="t")
        told = (await door.ask("DescribeConfigs", 4, resources=[asked, of_topic_too])).results
        assert [row.error_code for row in told] == [15, 0]

    play(story)


def test_what_a_group_sets_for_its_sessions() -> None:
    """As in Kafka 4.1.1: spaces around a number do not count, and what AlterConfigs does not name is unset."""

    async def story(door: Door) -> None:
        assert await changed(door, GROUP, "g", (SESSION, SET, " 50000 ")) == (0, "")
        assert await changed(door, GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "6000")) == (0, "")
        assert await shown(door, GROUP, "g", 8) == {SESSION: "50000", "consumer.heartbeat.interval.ms": "6000"}
        assert await replaced(door, GROUP, "g", consumer__session__timeout__ms="51000") == (0, "")
        assert await shown(door, GROUP, "g", 8) == {SESSION: "51000"}
        assert await changed(door, GROUP, "g", (SESSION, DELETE, "7")) == (0, "")
        assert await shown(door, GROUP, "g", 8) == {}

    play(story)


def test_every_setting_of_a_group_is_shown_at_this_door() -> None:
    async def story(door: Door) -> None:
        assert set(await shown(door, GROUP, "g", 5)) == set(SETTINGS)

    play(story)


@pytest.mark.parametrize(("kind", "key", "value"), [(TOPIC, "retention.ms", "5"), (GROUP, "assignor.options", "{}")])
def test_each_resource_stands_for_itself(kind: int, key: str, value: str) -> None:
    """One that is named twice is refused twice; Kafka's AlterConfigs never answers that."""

    async def story(door: Door) -> None:
        for api in ("AlterConfigs", "IncrementalAlterConfigs"):
            path = f"{api}Request.resources"
            row = made(f"{path}.configs", name=key, value=value)
            names = ["t", "gone", "gone"]
            asked = [made(path, resource_type=kind, resource_name=name, configs=[row]) for name in names]
            answer = await door.ask(api, 1, resources=asked)
            alone = 0 if kind == TOPIC else 40  # No options are no value.
            assert [row.error_code for row in answer.responses] == [alone, 42, 42]
            assert [row.resource_name for row in answer.responses] == names

    play(story)


def test_two_who_append_at_once_both_have_their_way() -> None:
    async def story(door: Door) -> None:

        key = "leader.replication.throttled.replicas"
        await asyncio.gather(*(changed(door, TOPIC, "t", (key, APPEND, f"{n}:{NODE_ID}")) for n in range(5)))
        assert (await of_topic(door))[key] == ",".join(f"{n}:{NODE_ID}" for n in range(5))

    play(story)


def test_a_long_request_leaves_turns_to_others() -> None:
    async def story(door: Door) -> None:
        path = "IncrementalAlterConfigsRequest.resources"
        many = [made(path, resource_type=TOPIC, resource_name=f"x{n}", configs=[]) for n in range(5 * TURN)]
        assert await turns_of_others(door.ask("IncrementalAlterConfigs", 1, resources=many)) >= 5

    play(story)


def test_of_many_bad_settings_a_few_are_told() -> None:
    """A refusal of 100,000 names took fifteen seconds of the loop and 84 MB."""

    async def story(door: Door) -> None:
        steps = [(f"no.such.{n}", SET, "x" * 300) for n in range(10_000)]
        code, words = await changed(door, TOPIC, "t", *steps)
        assert (code, words.count("is not a setting")) == (40, 5)
        assert words.endswith("There are more.")
        code, words = await changed(door, TOPIC, "t", ("retention.ms", SET, "9" * 30_000))
        assert code == 40
        assert len(words) < 500

    play(story)


def test_what_a_node_does_not_have_may_be_taken_away() -> None:
    """`kafka-reassign-partitions --verify` and `--cancel` delete the throttles of every broker, set or not."""

    async def story(door: Door) -> None:
        path = "IncrementalAlterConfigsRequest.resources"
        names = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
        gone = [made(f"{path}.configs", name=name, config_operation=1) for name in names]
        row = made(path, resource_type=4, resource_name=str(NODE_ID), configs=gone)
        answer = await door.ask("IncrementalAlterConfigs", 1, resources=[row])
        assert [each.error_code for each in answer.responses] == [0]
        gone[0].config_operation, gone[0].value = 0, "5"
        answer = await door.ask("IncrementalAlterConfigs", 1, resources=[row])
        assert [each.error_code for each in answer.responses] == [42]
        row.resource_name, gone[0].config_operation = "99", 1
        answer = await door.ask("IncrementalAlterConfigs", 1, resources=[row])
        assert answer.responses[0].error_code, "another node's are not this one's to take away"

    play(story)


def test_no_client_is_shown_where_the_brokers_of_a_kafka_below_are() -> None:
    settings = load_settings(None, {"engine": "kafka://b1.secret:9092,b2.secret:9092"})
    shown = describe_settings("DescribeConfigsResponse.results.configs", settings, settings, {})
    (engine,) = (each for each in shown if each.name == "engine")
    assert (engine.value, engine.is_sensitive) == (None, True)
    told = [
        *(each.value for each in shown),
        *(one.value for each in shown for one in value_synonyms(each, settings, settings)),
    ]
    assert not [value for value in told if "secret" in (value or "")]
