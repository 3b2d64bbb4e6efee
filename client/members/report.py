"""What a KIP-848 member tells of itself, and how little of it a heartbeat has to carry."""

from dataclasses import dataclass

from muster.client.members import actions as act
from muster.client.members.types import Partitions


@dataclass(frozen=True, slots=True)
class RequestedSubscription:
    """What the member wants: topics by name, by a regular expression, or both; empty texts mean none."""

    topics: tuple[str, ...] = ()
    regex: str = ""
    server_assignor: str = ""


@dataclass(frozen=True, slots=True)
class HeartbeatReport:
    """Everything one heartbeat can say."""

    wish: RequestedSubscription
    owned: Partitions
    ready: Partitions = ()
    """What it was told is coming, and is ready for."""


def build_heartbeat(
    token: int,
    member_id: str,
    epoch: int,
    news: tuple[HeartbeatReport | None, HeartbeatReport],
    rebalance_timeout_ms: int,
) -> act.SendConsumerHeartbeat:
    """`news` is what was said before, None for nothing, and what is to be said: only the difference is sent.

    >>> one, two = HeartbeatReport(RequestedSubscription(("t",)), ()), HeartbeatReport(RequestedSubscription(("t",)),
    ... (("t", 0),))
    >>> build_heartbeat(1, "m", 0, (None, one), 9).topics, build_heartbeat(2, "m", 5, (one, two), 9).topics
    (('t',), None)
    """
    said, report = news
    if said is None:
        wish = report.wish
        return act.SendConsumerHeartbeat(
            token,
            member_id,
            epoch,
            rebalance_timeout_ms,
            wish.topics,
            # Said even where it is empty: nobody knows which earlier words arrived, an expression may be among them.
            wish.regex,
            wish.server_assignor or None,
            report.owned,
            report.ready or None,
        )
    return act.SendConsumerHeartbeat(
        token,
        member_id,
        epoch,
        topics=report.wish.topics if report.wish.topics != said.wish.topics else None,
        # An empty expression takes the earlier one back.
        regex=report.wish.regex if report.wish.regex != said.wish.regex else None,
        owned=report.owned if report.owned != said.owned else None,
        ready=report.ready if report.ready and report.ready != said.ready else None,
    )
