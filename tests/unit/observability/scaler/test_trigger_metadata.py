"""What a trigger may say, and how it is told what is wrong with it."""

import pytest

from muster.coordinator.observability.scaler.trigger_metadata import (
    KEYS,
    READERS,
    BadMetadata,
    ScalerTrigger,
    parse_metadata,
)

GROUP = {"consumerGroup": "billing"}


def test_defaults_are_those_of_keda_s_kafka_scaler() -> None:
    assert parse_metadata(GROUP) == ScalerTrigger("billing")
    trigger = parse_metadata(GROUP)
    assert (trigger.lag_threshold, trigger.activation_lag_threshold, trigger.earliest) == (10, 0, False)
    assert not trigger.allow_idle_consumers
    assert trigger.hold_during_rebalance


def test_every_key_is_read() -> None:
    given = GROUP | {
        "topic": "orders",
        "lagThreshold": "50",
        "activationLagThreshold": "5",
        "offsetResetPolicy": "earliest",
        "allowIdleConsumers": "true",
        "scaleToZeroOnInvalidOffset": "True",
        "excludePersistentLag": "true",
        "limitToPartitionsWithLag": "false",
        "ensureEvenDistributionOfPartitions": "true",
        "partitionLimitation": "1, 2,10-12",
        "drainTargetSeconds": "120",
        "holdDuringRebalance": "false",
        "maxStep": "3",
    }
    assert given.keys() == KEYS.keys() == READERS.keys()
    assert parse_metadata(given) == ScalerTrigger(
        "billing", "orders", 50, 5, True, True, True, True, False, True, frozenset({1, 2, 10, 11, 12}), 120, False, 3
    )


def test_a_trigger_of_the_kafka_scaler_can_be_taken_over() -> None:
    more = {"scalerAddress": "muster:9290", "bootstrapServers": "kafka:9092", "version": "1.0.0", "tls": "disable"}
    assert parse_metadata(GROUP | more) == ScalerTrigger("billing")


def test_values_that_keda_takes_from_the_environment() -> None:
    assert parse_metadata({"consumerGroupFromEnv": "billing", "topicFromEnv": "orders"}) == ScalerTrigger(
        "billing", "orders"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "consumerGroup is ''; expected the id of the group whose consumers are scaled"),
        (GROUP | {"lagTreshold": "5"}, "lagTreshold is '5'; expected one of the keys consumerGroup, topic,"),
        (GROUP | {"lagTreshold": "5"}, "(did you mean lagThreshold?)"),
        (GROUP | {"lagThreshold": "0"}, "lagThreshold is '0'; expected a whole number of 1 or more"),
        (GROUP | {"lagThreshold": "1.5"}, "lagThreshold is '1.5'; expected a whole number of 1 or more"),
        (GROUP | {"lagThreshold": "9" * 5_000}, "at most 4096 characters; it has 5000"),
        (GROUP | {"activationLagThreshold": "-1"}, "expected a whole number of 0 or more"),
        (GROUP | {"offsetResetPolicy": "none"}, "offsetResetPolicy is 'none'; expected latest or earliest"),
        (GROUP | {"allowIdleConsumers": "yes"}, "allowIdleConsumers is 'yes'; expected true or false"),
        (
            GROUP | {"topic": "t", "partitionLimitation": "1-"},
            "partitionLimitation is '1-'; expected numbers and ranges",
        ),
        (GROUP | {"topic": "t", "partitionLimitation": "3-1"}, "expected ranges that go upwards, and at most 100000"),
        (GROUP | {"topic": "t", "partitionLimitation": "0-999999999"}, "and at most 100000 partitions"),
        (GROUP | {"partitionLimitation": "1"}, "topic is ''; expected a topic, because partitionLimitation is set"),
        (GROUP | {"limitToPartitionsWithLag": "true"}, "expected a topic, because limitToPartitionsWithLag is set"),
        (
            GROUP | {"topic": "t", "limitToPartitionsWithLag": "true", "allowIdleConsumers": "true"},
            "allowIdleConsumers is 'true'; expected false, because limitToPartitionsWithLag is true",
        ),
        (GROUP | {f"key{at}": "" for at in range(100)}, "scalerMetadata is '101 keys'; expected at most 100"),
    ],
)
def test_what_is_wrong_is_named_with_its_value_and_what_was_expected(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadMetadata) as refused:
        parse_metadata(given)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_metric_s_name_has_only_what_kubernetes_takes() -> None:
    assert parse_metadata(GROUP | {"topic": "a.b_c/ä"}).metric_name == "kafka-a-b-c--"
    assert parse_metadata(GROUP).metric_name == "kafka-billing-topics"
