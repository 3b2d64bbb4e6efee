"""What Kafka's tools are shown of a member of a KIP-848 group."""

from muster.coordinator.core.model.effects import ConsumerMemberView
from muster.coordinator.kafka.handlers.consumer_groups import consumer_member_row

TOPIC = b"t" * 16


def test_a_partition_that_is_being_given_up_is_not_shown_as_assigned() -> None:
    view = ConsumerMemberView(
        member_id="m",
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        topic_names=("t",),
        topic_regex=None,
        epoch=2,
        state="unrevoked",
        assigned={TOPIC: {0: 2}},
        revoking={TOPIC: {1: 2}},
        target={TOPIC: frozenset({0})},
        classic=False,
    )
    (share,) = consumer_member_row(view, {TOPIC: "t"}).assignment.topic_partitions
    assert (share.topic_name, share.partitions) == ("t", [0])
