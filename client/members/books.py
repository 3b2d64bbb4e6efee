"""What a consumer of the ZooKeeper era keeps of itself: where it stands, what it holds, what it waits for."""

from muster.client.members import actions as act
from muster.client.members import zookeeper_events as zk
from muster.client.members.types import NO_GENERATION, Partitions, TopicPartition
from muster.client.members.zookeeper_states import MOVES, REBALANCING
from muster.client.members.zookeeper_states import ZookeeperState as State
from muster.client.members.zookeeper_types import GroupRegistration, ZookeeperMemberSettings
from muster.coordinator.core.model.types import Cause


class ZookeeperMemberBase:
    """What it owns, its generation and its consumer id are its to say.

    `generation` is the transaction number of its newest claim: it grows from owner to owner of a partition.
    """

    def __init__(self, settings: ZookeeperMemberSettings, registration: GroupRegistration) -> None:
        self.settings = settings
        self.state = State.IDLE
        self.consumer_id = ""
        self.generation = NO_GENERATION
        self.owned: set[TopicPartition] = set()
        self.nodes: set[TopicPartition] = set()
        """Owner nodes that are, or may be, this session's. More than `owned` while it lets go or claims."""
        self._registration = registration
        self._registered_as: GroupRegistration | None = None
        self.cause, self.detail = Cause.UNSPECIFIED, ""
        """Of the change under way."""
        self._asked: int | None = None
        self._release_token: int | None = None
        self._last_token = 0
        self._now_ms = 0
        self._out: list[zk.ZookeeperAction] = []

    @property
    def rebalancing(self) -> bool:
        return self.state in REBALANCING

    @property
    def registered(self) -> bool:
        return self._registered_as is not None

    @property
    def awaited_release(self) -> int | None:
        """The token of the callbacks this member waits for."""
        return self._release_token

    def _tell(self, kind: type[act.Revoke] | type[act.Lost]) -> None:
        """From here on nothing is this member's any more, whatever the callback does."""
        if not self.owned:
            return
        gone: Partitions = tuple(sorted(self.owned))
        self.owned.clear()
        self._last_token += 1
        self._release_token = self._last_token
        # Whoever waits for its claims tries so long, and no longer.
        deadline_ms = self._now_ms + self.settings.patience_ms
        self._out.append(kind(self._last_token, gone, self.cause, self.detail, 0, deadline_ms))

    def _become(self, state: State) -> None:
        assert state is self.state or state in MOVES[self.state], f"{self.state} -> {state}"
        self.state = state

    def _ask(self) -> int:
        assert self._asked is None, "at most one request is under way"
        self._last_token += 1
        self._asked = self._last_token
        return self._last_token

    def _abandon(self) -> None:
        if self._asked is not None:
            self._out.append(act.Abandon(self._asked))
            self._asked = None
