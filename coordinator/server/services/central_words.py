"""What travels on the stream of a central group's member, to and from core events: shape only. Pure."""

from collections.abc import Iterable
from typing import assert_never, cast

from muster.coordinator.core.model import events
from muster.coordinator.core.model.orders import (
    NOTHING_COMMITTED,
    Order,
    Ping,
    RebalanceFailed,
    StartFetcher,
    StopFetcher,
)
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Cause, CommittedOffset, RequestId
from muster.coordinator.edge import shape
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import ledger_pb2

NOT_FETCHING = -1
NO_EPOCH = -1


def parse_registration(
    request: pb.RegisterConsumer,
    request_id: RequestId,
    *,
    client_host: str,
    client_software: str,
    stream: int,
    rights: Rights = None,
) -> events.RegisterConsumer:
    """`stream` is that of the registration before, on the same stream; 0 for the first."""
    shape.check_at_most("topics", len(request.topics), shape.MAX_TOPICS)
    owned = tuple(
        (shape.check_filled_name("owned.topic", row.topic), shape.check_at_least("owned.partitions", partition, 0))
        for row in request.owned
        for partition in row.partitions
    )
    shape.check_at_most("owned", len(owned), shape.MAX_PARTITIONS)
    return events.RegisterConsumer(
        request_id=request_id,
        group_id=shape.check_name("group_id", request.group_id),
        member_id=shape.check_name("member_id", request.member_id),
        client_id=shape.check_name("client_id", request.client_id),
        client_host=client_host,
        client_software=client_software,
        rack_id=shape.check_name("rack_id", request.rack_id) or None,
        session_timeout_ms=shape.check_at_least("session_timeout_ms", request.session_timeout_ms, 0),
        topics=tuple(shape.check_filled_name("topics", topic) for topic in request.topics),
        regex=request.regex,
        assignor=shape.check_filled_name("assignor", request.assignor),
        generation=request.generation_id if request.HasField("generation_id") else NOT_FETCHING,
        owned=owned,
        offsets=parse_consumed_offsets(request.offsets),
        stream=stream,
        rights=rights,
    )


def parse_consumed_offsets(rows: Iterable[pb.ConsumedOffset]) -> events.Offsets:
    offsets = tuple(
        (
            shape.check_filled_name("offsets.topic", row.topic),
            shape.check_at_least("offsets.partition", row.partition, 0),
            CommittedOffset(
                shape.check_at_least("offsets.offset", row.offset, 0),
                row.leader_epoch if row.HasField("leader_epoch") else NO_EPOCH,
            ),
        )
        for row in rows
    )
    shape.check_at_most("offsets", len(offsets), shape.MAX_PARTITIONS)
    return offsets


def build_order(given: Order, answered: int, epoch: int) -> pb.SessionResponse:
    """`answered`: the highest number that has been heard back; `epoch`: that of the reign under which it is given."""
    out = pb.CentralOrder(number=given.number, answered=answered, coordinator_epoch=epoch)
    match given:
        case Ping():
            out.ping.SetInParent()
        case StopFetcher():
            out.stop_fetcher.cause = build_cause(given.cause)
            out.stop_fetcher.cause_detail = given.cause_detail
            out.stop_fetcher.rebalance_number = given.rebalance_number
        case StartFetcher():
            out.start_fetcher.CopyFrom(build_start(given))
        case RebalanceFailed():
            out.rebalance_failed.detail = given.detail
        case _:
            assert_never(given)
    return pb.SessionResponse(order=out)


def build_start(given: StartFetcher) -> pb.StartFetcher:
    return pb.StartFetcher(
        generation_id=given.generation,
        partitions=[
            pb.StartPartition(topic=topic, partition=partition, offset=None if offset == NOTHING_COMMITTED else offset)
            for topic, partition, offset in given.partitions
        ],
        cause=build_cause(given.cause),
        cause_detail=given.cause_detail,
        rebalance_number=given.rebalance_number,
    )


def build_cause(of: Cause) -> ledger_pb2.RebalanceCause:
    return cast(ledger_pb2.RebalanceCause, of)
