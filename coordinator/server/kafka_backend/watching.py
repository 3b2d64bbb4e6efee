"""What an operator hears of a node's upstream and of its shards there: lines in the log, conditions, counts."""

from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.kafka_backend.shard_ownership.effects import AcquisitionReport, TakeoverCause
from muster.coordinator.kafka_backend.shard_ownership.node_shards import IN_ORDER, NodeShards
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import ShardAssignment
from muster.coordinator.kafka_backend.shard_ownership.stages import SERVING, Stage
from muster.coordinator.kafka_backend.upstream.errors import describe_code
from muster.coordinator.observability.metrics.instruments import Timing
from muster.coordinator.runtime.conditions import GROUPS, Conditions

PATIENCE_MS: Final = 5_000
"""So long a shard may be on its way, and what it wrote without an acknowledgement, before an operator is told."""

UNTROUBLED: Final = (*SERVING, Stage.LOST)
"""Of a shard that has lost something there is a condition of its own."""

NAMED: Final = 5
"""Shards that are named in one sentence."""

log = structlog.get_logger("muster.engine")


class PerformsOwnership(Protocol):
    """`Owning`, as far as it is asked here."""

    @property
    def shards(self) -> NodeShards: ...


@dataclass(frozen=True, slots=True)
class ConditionSince:
    """Something is as it is, for how long."""

    what: object
    since_ms: int


class ShardDiagnostics:
    """All of it in the node's loop. `look` every now and then."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._trouble = ""
        self._refused = ""
        self._stages: dict[int, ConditionSince] = {}
        self.appends = Timing()
        self.fenced_total = 0
        self.voids_total = 0

    # -- what happens -------------------------------------------------------------------------------------------------

    def topics_troubled(self, sentence: str) -> None:
        """Why the upstream does not answer; "": it does."""
        self._trouble = sentence

    def group_troubled(self, sentence: str) -> None:
        """Why the nodes' group refuses this node, which goes on to try."""
        self._refused = sentence

    def dealt(self, deal: ShardAssignment) -> None:
        """The shards were shared anew."""
        self._refused = ""
        mine = deal.nodes.get(self._settings.node_id)
        log.info(
            "shards dealt",
            nodes=len(deal.nodes),
            mine=0 if mine is None else len(mine.shards),
            to_nobody=deal.shards - sum(len(node.shards) for node in deal.nodes.values()),
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
        if report.voids:
            self.voids_total += report.voids
            log.warning(
                "records of somebody who owned the shard no more were passed over",
                shard=shard,
                records=report.voids,
                written_again=report.repaired,
            )

    def fenced(self, shard: int) -> None:
        self.fenced_total += 1
        log.warning("another node owns the shard now; it is unloaded here", shard=shard)

    def lost(self, shard: int, why: str) -> None:
        tell = log.debug if why in IN_ORDER else log.warning
        tell("shard unloaded", shard=shard, why=why)

    # -- what is so ---------------------------------------------------------------------------------------------------

    def look(self, owning: PerformsOwnership, conditions: Conditions, now_ms: int) -> None:
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
