"""What operators learn about the upstream and a node's shards: lines in the log, conditions and counts.

Covered are topics that answers leave out, members that bypass the nodes, a proxy principal with too many rights,
broker names that the listener's certificate is not for, an upstream that is away or slow, and shards that are not
served.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.kafka_backend.foreign_member_guard import (
    ForeignMemberGuard,
    ForeignMembers,
    foreign_members_sentence,
)
from muster.coordinator.kafka_backend.proxy.proxy_principal import ProxyPrincipalCheck
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import AcquisitionReport, TakeoverCause
from muster.coordinator.kafka_backend.shard_ownership.lease import SERVING, Stage
from muster.coordinator.kafka_backend.shard_ownership.node_shards import IN_ORDER, NodeShards
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import ShardAssignment
from muster.coordinator.kafka_backend.upstream.protocol import describe_code
from muster.coordinator.kafka_backend.upstream.topic_watch import UpstreamTopics
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.observability.metrics.instruments import Timing
from muster.coordinator.runtime.node_status import GROUPS, Conditions
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.server.node_events import report_contained

# Topics, foreign members and rights
# ----------------------------------

UNSEEN_PATIENCE_MS: Final = 30_000
"""How much longer than a deleted topic takes to be known as such one is left out before somebody is told."""

NAMED: Final = 5

UNSEEN: Final = "topics-unseen"
FOREIGN: Final = "foreign-members"
PRINCIPAL: Final = "proxy-principal"


class UpstreamDiagnostics:
    """`start` and `stop`; `report_conditions` every now and then."""

    def __init__(
        self,
        upstream: Upstream,
        topics: UpstreamTopics,
        *,
        shards: int,
        mine: Callable[[int], bool],
        ours: Callable[[str], bool] = lambda group: True,
        gone_after_ms: int,
        principal: ProxyPrincipalCheck | None = None,
    ) -> None:
        """mine: whether a shard is this node's: of each group one node tells. ours: whether a group is Muster's.
        principal: as whom clients come to the brokers, where not as themselves."""
        self._topics = topics
        self._principal = principal
        self._mine, self._shards = mine, shards
        self._guard = ForeignMemberGuard(upstream, ours)
        self._patience_ms = gone_after_ms + UNSEEN_PATIENCE_MS

    def start(self) -> None:
        self._guard.start()
        if self._principal is not None:
            self._principal.start()

    async def stop(self) -> None:
        await self._guard.stop()
        if self._principal is not None:
            await self._principal.stop()

    @property
    def foreign(self) -> Mapping[str, ForeignMembers]:
        """Groups of this node's shards that have members upstream."""
        return {group: found for group, found in self._guard.found.items() if self._is_mine(group)}

    def _is_mine(self, group: str) -> bool:
        return self._mine(partition_for(group, self._shards))

    @property
    def unseen(self) -> list[str]:
        """Topics that answers leave out for long, and that are planned with."""
        return sorted(name for name, for_ms in self._topics.unseen().items() if for_ms > self._patience_ms)

    def report_conditions(self, conditions: Conditions) -> None:
        set_condition(conditions, UNSEEN, unseen_topics_sentence(self.unseen))
        set_condition(conditions, FOREIGN, foreign_members_sentence(self.foreign))
        if self._principal is not None:
            set_condition(conditions, PRINCIPAL, self._principal.sentence)


def set_condition(conditions: Conditions, name: str, sentence: str) -> None:
    if sentence:
        conditions.report(name, sentence)
    else:
        conditions.clear(name)


def unseen_topics_sentence(names: list[str]) -> str:
    """Empty where there is nothing to tell.

    >>> unseen_topics_sentence(["orders"]).partition(":")[0]
    'the upstream does not tell of 1 topic that groups read here, and does not say either that it is gone'
    """
    if not names:
        return ""
    many = "1 topic" if len(names) == 1 else f"{len(names)} topics"
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (
        f"the upstream does not tell of {many} that groups read here, and does not say either that "
        f"{'it is' if len(names) == 1 else 'they are'} gone: {', '.join(names[:NAMED])}{more}. They are planned with "
        "as before; look whether Muster's login may still describe them (`muster engine acls`)"
    )


def report_optional_bug(what: str) -> Callable[[BaseException], None]:
    """A mistake of the program in something that the node can do without: it is in the node's log, no more."""

    def report(error: BaseException) -> None:
        report_contained(what, error if isinstance(error, Exception) else RuntimeError(repr(error)))

    return report


# Broker names that the certificate does not cover
# ------------------------------------------------

NAMES: Final = "broker-names"


def broker_names_sentence(settings: Settings, brokers: Iterable[int], covers: Callable[[str], bool]) -> str:
    """Empty where there is nothing to tell. covers: whether the certificate is for a host of this name.

    >>> from muster.coordinator.config import load_settings
    >>> settings = load_settings(None, {"engine": "kafka://b:9092", "engine.kafka.broker.hosts": "b-$(id).example"})
    >>> broker_names_sentence(settings, [2, 1], {"b-1.example"}.__contains__).partition(":")[0]
    'the certificate that kafka.listeners shows is not for b-2.example'
    >>> broker_names_sentence(settings, [1], {"b-1.example"}.__contains__)
    ''
    """
    if not settings.engine_kafka_broker_hosts:
        return ""
    names = [settings.broker_host(each) for each in sorted(brokers)]
    missing = [name for name in names if not covers(name)]
    if not missing:
        return ""
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return (
        f"the certificate that kafka.listeners shows is not for {', '.join(missing[:NAMED])}{more}: clients that check "
        f"names cannot reach these brokers; have one made whose alternative names are each of them, or one with a * "
        f"for the first part (engine.kafka.broker.hosts is {settings.engine_kafka_broker_hosts})"
    )


# The upstream and the node's shards
# ----------------------------------

PATIENCE_MS: Final = 5_000
"""So long a shard may be on its way, and what it wrote without an acknowledgement, before an operator is told."""

UNTROUBLED: Final = (*SERVING, Stage.LOST)
"""Of a shard that has lost something there is a condition of its own."""


log = structlog.get_logger("muster.engine")


class PerformsOwnership(Protocol):
    """`ShardOwner`, as far as it is asked here."""

    @property
    def shards(self) -> NodeShards: ...


@dataclass(frozen=True, slots=True)
class ConditionSince:
    """Something is as it is, for how long."""

    what: object
    since_ms: int


class ShardDiagnostics:
    """All of it in the node's loop. `report_shards` every now and then."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._trouble = ""
        self._refused = ""
        self._stages: dict[int, ConditionSince] = {}
        self.appends = Timing()
        self.fenced_total = 0
        self.fenced_records_total = 0

    # -- what happens -------------------------------------------------------------------------------------------------

    def topics_troubled(self, sentence: str) -> None:
        """Why the upstream does not answer; "": it does."""
        self._trouble = sentence

    def group_troubled(self, sentence: str) -> None:
        """Why the nodes' group refuses this node, which goes on to try."""
        self._refused = sentence

    def log_assignment(self, assignment: ShardAssignment) -> None:
        """The shards were shared anew."""
        self._refused = ""
        mine = assignment.nodes.get(self._settings.node_id)
        log.info(
            "shards assigned",
            nodes=len(assignment.nodes),
            mine=0 if mine is None else len(mine.shards),
            to_nobody=assignment.shards - sum(len(node.shards) for node in assignment.nodes.values()),
        )

    def served(self, report: AcquisitionReport, shard: int) -> None:
        owner, before = report.owner, report.before
        tell = log.debug if report.cause in (TakeoverCause.FIRST, TakeoverCause.NODE_RESTARTED) else log.info
        tell(
            "shard taken",
            shard=shard,
            turn=owner.turn,
            cause=report.cause.value,
            **({} if before is None else {"from_node": before.node}),
            took=f"{(report.served_ms - report.assigned_ms) / 1000:.3f}s",
        )
        if report.fenced_records:
            self.fenced_records_total += report.fenced_records
            log.warning(
                "records of a former owner of the shard were skipped",
                shard=shard,
                records=report.fenced_records,
                written_again=report.repaired,
            )

    def fenced(self, shard: int) -> None:
        self.fenced_total += 1
        log.warning("another node owns the shard now; it is unloaded here", shard=shard)

    def lost(self, shard: int, why: str) -> None:
        tell = log.debug if why in IN_ORDER else log.warning
        tell("shard unloaded", shard=shard, why=why)

    # -- what is so ---------------------------------------------------------------------------------------------------

    def report_shards(self, owning: PerformsOwnership, conditions: Conditions, now_ms: int) -> None:
        """Tell what is wrong at the moment."""
        shards = owning.shards
        stages = shards.stages()
        for shard, stage in stages.items():
            if shard not in self._stages or self._stages[shard].what is not stage:
                self._stages[shard] = ConditionSince(stage, now_ms)
        for shard in self._stages.keys() - stages.keys():
            del self._stages[shard]
        stuck = {
            shard: stages[shard].value
            for shard, since in self._stages.items()
            if stages[shard] not in UNTROUBLED and now_ms - since.since_ms >= PATIENCE_MS
        }
        self._tell_stuck(conditions, stuck, shards)
        self._tell_lost(conditions, shards)
        self._tell_slow(conditions, self._slow(shards, now_ms), shards)
        if self._refused:
            conditions.report("nodes-group", f"{self._refused}; it is tried again", impairs=GROUPS)
        else:
            conditions.clear("nodes-group")
        where = self._settings.engine
        if self._trouble:
            conditions.report(
                "upstream-away",
                f"{where}: {self._trouble}. Heartbeats are answered while the node may; nothing new can be written",
                impairs=GROUPS,
            )
        else:
            conditions.clear("upstream-away")

    def _tell_stuck(self, conditions: Conditions, stuck: dict[int, str], shards: NodeShards) -> None:
        if not stuck:
            conditions.clear("shards-not-served")
            return
        shard, stage = next(iter(sorted(stuck.items())))
        conditions.report(
            "shards-not-served",
            f"shards {first_shards(stuck)} are this node's and not served yet: shard {shard} {stage} for more than "
            f"{PATIENCE_MS // 1000} s{upstream_reason(shards, shard)}; look at the brokers that lead its partition of "
            f"{self._settings.state_topic}, "
            "and at the coordinator of its transactional id",
            impairs=GROUPS,
        )

    def _tell_lost(self, conditions: Conditions, shards: NodeShards) -> None:
        """KB-H1: loudly, and until an operator has said what counts."""
        topic, lost = self._settings.state_topic, shards.lost()
        if shards.topic_lost:
            sentence = f"no shard is served: {shards.topic_lost}"
        elif lost:
            shard = min(lost)
            sentence = (
                f"shards {first_shards([*lost])} of the state topic {topic} are not served: of shard {shard}, "
                f"{lost[shard]}. "
                "Look at what became of it; `muster engine init --again` says that what is there counts"
            )
        else:
            conditions.clear("state-topic")
            return
        conditions.report("state-topic", sentence, impairs=GROUPS)

    def _slow(self, shards: NodeShards, now_ms: int) -> list[int]:
        """Shards of which nothing was acknowledged for long, though something waits for it."""
        tried = {shard: shards.tried_since(shard) for shard in shards.stages()}
        return [shard for shard, since in tried.items() if since is not None and now_ms - since >= PATIENCE_MS]

    def _tell_slow(self, conditions: Conditions, slow: list[int], shards: NodeShards) -> None:
        if not slow:
            conditions.clear("upstream-slow")
            return
        conditions.report(
            "upstream-slow",
            f"what shards {first_shards(slow)} wrote is not acknowledged by the upstream for more than "
            f"{PATIENCE_MS // 1000} s{upstream_reason(shards, slow[0])}: commits and joins wait, then hear "
            "COORDINATOR_NOT_AVAILABLE; look at the brokers, and at min.insync.replicas of "
            f"{self._settings.state_topic}",
            impairs=GROUPS,
        )


def upstream_reason(shards: NodeShards, shard: int) -> str:
    """What the upstream said last, for a sentence; nothing where it says nothing at all."""
    trouble = shards.trouble(shard)
    if trouble is None:
        return ""
    return f" ({trouble.detail or 'no answer'})" if not trouble.code else f" (it says {describe_code(trouble.code)})"


def first_shards(shards: "dict[int, str] | list[int]") -> str:
    """The first of them, for a sentence.

    >>> first_shards([3, 1]), first_shards([6, 5, 4, 3, 2, 1])
    ('1, 3', '1, 2, 3, 4, 5 and 1 more')
    """
    ordered = sorted(shards)
    more = f" and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
    return ", ".join(map(str, ordered[:NAMED])) + more
