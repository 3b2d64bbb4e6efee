"""Orders on their way to a member: queued until its stream asks for them, numbered, and watched until answered."""

from muster.coordinator.core.central.group import CentralGroup, CentralMember, OrderedAction, OutstandingOrder
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import CentralReply
from muster.coordinator.core.model.events import AwaitOrders
from muster.coordinator.core.model.orders import (
    NOTHING_COMMITTED,
    Order,
    Ping,
    RebalanceFailed,
    StartFetcher,
    StopFetcher,
)
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import CoordinatorError, ErrorCode


def await_orders(request: AwaitOrders, step: Step) -> None:
    """Give the stream what waits for its member, or let it wait."""
    _, member = require_speaker(request.group_id, request.member_id, request.stream, step)
    release_stream(member, step)
    member.waiting = request.request_id
    step.state.parked[request.request_id] = member.id
    deliver_orders(member, step)


def require_speaker(group_id: str, member_id: str, stream: int, step: Step) -> tuple[CentralGroup, CentralMember]:
    """The member whose open stream this is; UNKNOWN_MEMBER_ID when the group goes on without it."""
    group = step.state.find(CentralGroup, group_id)
    member = group.members.get(member_id) if group is not None else None
    if group is None or member is None or member.stream != stream:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"member {member_id!r} of group {group_id!r} is not registered by this stream; stop fetching and register",
        )
    return group, member


def send_ping(group: CentralGroup, member: CentralMember, step: Step) -> None:
    number = next_order_number(member)
    member.ping, member.pinged_ms = number, step.now_ms
    queue_order(member, Ping(number), step)
    step.arm(group.ping_timer(member.id), member.patience_ms)


def order_stop(group: CentralGroup, member: CentralMember, step: Step) -> None:
    number = next_order_number(member)
    cause, detail, rebalance = current_cause(group, step)
    send_order(group, member, OutstandingOrder(OrderedAction.STOP, number), step)
    queue_order(member, StopFetcher(number, cause, detail, rebalance), step)


def order_start(group: CentralGroup, member: CentralMember, step: Step) -> None:
    """Order the member to fetch what is stored for it, from where the group has committed."""
    number = next_order_number(member)
    member.may_fetch = True
    committed = step.state.offsets.get(group.id, {})
    share = group.owned[member.id]
    partitions = tuple(
        (topic, partition, stored.offset if (stored := committed.get((topic, partition))) else NOTHING_COMMITTED)
        for topic in sorted(share)
        for partition in share[topic]
    )
    cause, detail, rebalance = current_cause(group, step)
    send_order(group, member, OutstandingOrder(OrderedAction.START, number), step)
    queue_order(member, StartFetcher(number, group.generation, partitions, cause, detail, rebalance), step)


def report_failure(member: CentralMember, detail: str, step: Step) -> None:
    queue_order(member, RebalanceFailed(next_order_number(member), detail), step)


def current_cause(group: CentralGroup, step: Step) -> tuple[Cause, str, int]:
    """Why: the rebalance under way, else the last one."""
    rebalance = group.progress.rebalance
    if rebalance is not None:
        return rebalance.trigger.cause, rebalance.trigger.detail, rebalance.number
    ledger = step.state.ledgers.get(group.id)
    entry = ledger.newest if ledger else None
    return (entry.cause, entry.detail, entry.number) if entry else (Cause.UNSPECIFIED, "", 0)


def send_order(group: CentralGroup, member: CentralMember, wanted: OutstandingOrder, step: Step) -> None:
    member.demand = wanted
    step.arm(group.order_timer(member.id), member.patience_ms)


def next_order_number(member: CentralMember) -> int:
    member.last_number += 1
    return member.last_number


def queue_order(member: CentralMember, order: Order, step: Step) -> None:
    """The latest word of a kind replaces one that was not delivered; a stop and a start are of one kind."""
    kind: tuple[type[Order], ...] = (type(order),)
    if isinstance(order, StopFetcher | StartFetcher):
        kind = (StopFetcher, StartFetcher)
    member.orders = [earlier for earlier in member.orders if not isinstance(earlier, kind)]
    member.orders.append(order)
    deliver_orders(member, step)


def deliver_orders(member: CentralMember, step: Step) -> None:
    if member.waiting is None or not member.orders:
        return
    orders, member.orders = tuple(member.orders), []
    request, member.waiting = member.waiting, None
    step.reply(request, CentralReply(orders=orders, answered=member.answered))


def release_stream(member: CentralMember, step: Step, code: ErrorCode = ErrorCode.NONE, message: str = "") -> None:
    """Answer the stream that waits, if any."""
    if member.waiting is not None:
        request, member.waiting = member.waiting, None
        step.reply(request, CentralReply(code, message, answered=member.answered))
