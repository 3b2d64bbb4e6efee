"""Topics of the upstream and their settings; who writes to a partition."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.errors import UpstreamRefused
from muster.coordinator.kafka_backend.upstream.upstream import Upstream

TOPIC: Final = 2
"""DescribeConfigs' type of resource."""
OF_TOPIC: Final = 1
"""Its source of what was set for a topic itself."""
CREATE_MS: Final = 30_000
TOPIC_ALREADY_EXISTS: Final = 36
NOT_CONTROLLER: Final = 41


class PartitionProducer(NamedTuple):
    """A producer that a partition knows."""

    producer_id: int
    epoch: int
    last_sequence: int
    transaction_from: int
    """Where its open transaction begins; -1: none is open."""


class TopicConfigEntry(NamedTuple):
    """A setting of a topic. own: it was set for this topic."""

    name: str
    value: str
    own: bool


async def topic_configs(upstream: Upstream, topic: str, names: Sequence[str]) -> dict[str, str]:
    """The values of these settings of a topic, defaults included. Raises UpstreamError."""
    return {each.name: each.value for each in await describe_topic_configs(upstream, topic, names)}


async def describe_topic_configs(
    upstream: Upstream, topic: str, names: Sequence[str] | None = None
) -> list[TopicConfigEntry]:
    """These settings of a topic; None: all. Raises UpstreamError."""
    resource = struct("DescribeConfigsRequest.resources")(
        resource_type=TOPIC, resource_name=topic, configuration_keys=None if names is None else list(names)
    )
    answer = await upstream.any("DescribeConfigs", struct("DescribeConfigsRequest")(resources=[resource]))
    for result in answer.results:
        if result.error_code:
            raise UpstreamRefused(f"asking for the settings of {topic}", result.error_code, result.error_message)
        return [
            TopicConfigEntry(each.name, each.value or "", each.config_source == OF_TOPIC) for each in result.configs
        ]
    return []


async def create_topic(
    upstream: Upstream, topic: str, partitions: int, replication: int, configs: Mapping[str, str]
) -> None:
    """Make it, unless it is there by now. Raises UpstreamError."""
    settings = [struct("CreateTopicsRequest.topics.configs")(name=name, value=value) for name, value in configs.items()]
    wanted = struct("CreateTopicsRequest.topics")(
        name=topic, num_partitions=partitions, replication_factor=replication, configs=settings
    )
    request = struct("CreateTopicsRequest")(topics=[wanted], timeout_ms=CREATE_MS)
    controller = upstream.view.controller
    if controller in upstream.view.brokers:
        answer = await upstream.ask(controller, "CreateTopics", request, waits_s=CREATE_MS / 1000)
    else:
        answer = await upstream.any("CreateTopics", request)
    for made in answer.topics:
        if made.error_code not in (0, TOPIC_ALREADY_EXISTS):
            raise UpstreamRefused(f"making the topic {topic}", made.error_code, made.error_message)


async def list_producers(upstream: Upstream, topic: str, partition: int) -> list[PartitionProducer]:
    """The producers that the partition's leader knows. Raises UpstreamError."""
    asked = struct("DescribeProducersRequest.topics")(name=topic, partition_indexes=[partition])
    request = struct("DescribeProducersRequest")(topics=[asked])
    answer = await upstream.ask(upstream.leader(topic, partition), "DescribeProducers", request)
    for each in answer.topics:
        for part in each.partitions:
            if part.error_code:
                raise UpstreamRefused(f"asking who writes to {topic}-{partition}", part.error_code, part.error_message)
            return [
                PartitionProducer(one.producer_id, one.producer_epoch, one.last_sequence, one.current_txn_start_offset)
                for one in part.active_producers
            ]
    return []
