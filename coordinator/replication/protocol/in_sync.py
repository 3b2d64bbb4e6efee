"""Who is in sync, and how a leader agrees on it with the controller (CL-L5): one question at a time, and what may have
come of those that nobody answered."""

from dataclasses import dataclass

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.facts import NO_EPOCH, TopicPartition
from muster.coordinator.replication.protocol.lease import NEVER

RETRY_MS = 100
"""After a controller that could not be asked, or refused for the moment."""

AWAITS_IMAGE = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """What the controller is asked for: these in-sync replicas instead of those of `partition_epoch`.

    isr: (node id, node epoch) in order of assignment; the epoch is the one by which the replica was found in sync.
    """

    unit: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(node for node, _ in self.isr)


@dataclass(frozen=True, slots=True)
class IsrAnswer:
    """What the controller says to that. NONE: these are the replicas in sync as of `partition_epoch`. REQUEST_TIMED_OUT
    stands for every answer that did not come: the controller may have done it, and may do it yet."""

    code: ErrorCode
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()


class IsrState:
    """The in-sync replicas of a unit, as its leader knows them in one leader epoch.

    committed: as of partition_epoch. largest: besides them those whom the controller was asked to let in, and may have
    let in. It tells answers of this question from late ones by `asked`, the very object.

    A question that nobody answered may still be done, as long as the partition epoch it names is the present one. So
    those it would let in are counted with (`doubtful`) until an answer or the image names a later partition epoch. A
    refusal of a later question proves nothing of an earlier one; the controller is then asked for the committed set
    as it is, which makes a new partition epoch, and thereby voids what is under way (`settle`).
    """

    __slots__ = (
        "_wait_until",
        "_waits_for_image",
        "asked",
        "committed",
        "doubtful",
        "largest",
        "min_size",
        "partition_epoch",
        "settle",
    )

    def __init__(self, committed: tuple[int, ...], partition_epoch: int, min_size: int) -> None:
        self.committed = committed
        self.largest = committed
        self.partition_epoch = partition_epoch
        self.min_size = min_size
        self.asked: IsrProposal | None = None
        self.doubtful: frozenset[int] = frozenset()
        self.settle = False
        self._waits_for_image = False
        self._wait_until = NEVER

    @property
    def enough(self) -> bool:
        return len(self.committed) >= self.min_size

    @property
    def open(self) -> bool:
        """Whether another question may be asked, some time."""
        return self.asked is None and not self._waits_for_image

    def may_ask(self, now_ms: int) -> bool:
        return self.open and now_ms >= self._wait_until

    def ask(self, question: IsrProposal) -> IsrProposal:
        """The question is under way from here on."""
        self.asked = question
        self._measure()
        return question

    def answered(self, answer: IsrAnswer, leader_epoch: int, now_ms: int) -> None:
        """The answer to `asked`, or that there was none."""
        asked, self.asked = self.asked, None
        assert asked is not None
        code = answer.code
        if code == ErrorCode.NONE and answer.leader_epoch != leader_epoch:
            code = ErrorCode.REQUEST_TIMED_OUT
        if code == ErrorCode.NONE:
            self.commit(answer.isr, answer.partition_epoch)
            return
        self._wait_until = now_ms + RETRY_MS
        if code == ErrorCode.REQUEST_TIMED_OUT:
            self.doubtful |= set(asked.nodes).difference(self.committed)
        elif code == ErrorCode.INELIGIBLE_REPLICA:
            self.settle = bool(self.doubtful)
        elif code in AWAITS_IMAGE:
            self.doubtful |= set(asked.nodes).difference(self.committed)
            self._waits_for_image = True
        self._measure()

    def commit(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """These are in sync as of that partition epoch; what was asked for under an older one will not be done."""
        self.committed = isr
        self.partition_epoch = partition_epoch
        self.asked = None
        self.doubtful = frozenset()
        self.settle = False
        self._waits_for_image = False
        self._measure()

    def _measure(self) -> None:
        more = set(self.doubtful)
        if self.asked is not None:
            more.update(self.asked.nodes)
        self.largest = self.committed + tuple(sorted(more.difference(self.committed)))
