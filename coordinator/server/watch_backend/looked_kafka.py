"""What looks at a watched Kafka are good for: the states of groups that rebalance; and, where nobody may read the
records of groups, everything that is known of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from muster.coordinator.config import Settings
from muster.coordinator.core.model.events import GroupSeen, RecordsWatched
from muster.coordinator.core.model.records import Record
from muster.coordinator.kafka_backend.upstream.group_requests import (
    AT_ONCE,
    CONSUMER,
    ListedUpstreamGroup,
    fetch_session_timeouts,
    list_groups_in,
)
from muster.coordinator.kafka_backend.upstream.protocol import Unspoken, describe_address
from muster.coordinator.kafka_backend.upstream.topic_watch import UpstreamTopics
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.watch.described_groups import DescribedGroups
from muster.coordinator.watch.live_looks import LiveLooks, LooksListener
from muster.coordinator.watch.offsets_topic_reader import OFFSETS_TOPIC, grant_command


class WatchedShards(Protocol):
    """The shards that answer for groups, and what is read of the topic."""

    def tell_group(self, group_id: str, event: RecordsWatched | GroupSeen) -> None:
        """Of the shard that has the group."""

    def looked(self) -> None:
        """All groups of all brokers were looked at: nothing else is coming at once."""

    def live_groups(self) -> set[str]:
        """Groups that have members, by their records."""

    def learn_sessions(self, sessions: Mapping[str, int]) -> None:
        """By KIP-848 group, its session timeout in ms."""


class LookedKafka:
    """hidden: nobody may read the records, so groups are described instead."""

    def __init__(
        self, settings: Settings, upstream: Upstream, topics: UpstreamTopics, now_ms: Callable[[], int],
        shards: WatchedShards,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._upstream = upstream
        self._shards = shards
        self._described = DescribedGroups(upstream, self._learn, topics.ids, now_ms)
        self._listed: dict[int, set[str]] = {}
        """By broker, the groups that it listed last."""
        self._troubles: dict[int, str] = {}
        """Brokers that do not tell which groups rebalance, and why."""
        self._looks = LiveLooks(upstream, self, poll_ms=settings.watch_poll_ms, describe_ms=settings.watch_describe_ms)
        self.hidden = False

    def start(self) -> None:
        self._looks.start()

    async def stop(self) -> None:
        await self._looks.stop()

    def stir(self) -> None:
        """Records tell that groups rebalance."""
        self._looks.stir()

    def hide(self, hidden: bool) -> None:
        """Whether nobody may read the records."""
        self.hidden = hidden
        self._listed.clear()
        self._described.forget()
        self._looks.only_looks = hidden
        self._looks.look_at_all_soon()

    def _learn(self, group_id: str, facts: Sequence[Record]) -> None:
        self._shards.tell_group(group_id, RecordsWatched(tuple(facts)))

    # -- what looks say -----------------------------------------------------------------------------------------------

    def saw_state(self, group_id: str, state: str) -> None:
        self._shards.tell_group(group_id, GroupSeen(group_id, state))

    async def saw_settled(self, broker: int, groups: Sequence[ListedUpstreamGroup]) -> None:
        """Records tell what became of them, where they can be read."""
        if self.hidden:
            await self._described.take(broker, groups)

    async def saw_groups(self, broker: int, groups: Sequence[ListedUpstreamGroup]) -> None:
        await self._ask_sessions(broker, groups)
        hidden = self.hidden
        if hidden:
            await self._described.take_all(broker, groups)
        if hidden == self.hidden:
            self._listed[broker] = {each.group for each in groups}
            self._shards_looked()

    def looks_troubled(self, broker: int, why: str) -> None:
        if why:
            self._troubles[broker] = why
        else:
            self._troubles.pop(broker, None)
        self._shards_looked()

    def _shards_looked(self) -> None:
        if self._upstream.view.brokers.keys() <= self._listed.keys() | self._troubles.keys():
            self._shards.looked()

    @property
    def groups(self) -> int:
        """How many were listed."""
        return sum(map(len, self._listed.values()))

    # -- session timeouts ---------------------------------------------------------------------------------------------

    async def ask_all_sessions(self, wanted: str) -> None:
        """Before anything is concluded: of one group, or of all. Raises UpstreamError."""
        for broker in list(self._upstream.view.brokers):
            listed = await list_groups_in(self._upstream, broker, ())
            groups = [each for each in listed.groups if wanted in ("", each.group)]
            await self._ask_sessions(broker, groups)

    async def _ask_sessions(self, broker: int, groups: Sequence[ListedUpstreamGroup]) -> None:
        """Those of KIP-848 groups, which no record tells. Of a broker that tells none no more is asked. Raises
        UpstreamError."""
        modern = [each.group for each in groups if each.kind == CONSUMER]
        for begin in range(0, len(modern), AT_ONCE):
            try:
                told = await fetch_session_timeouts(self._upstream, broker, modern[begin : begin + AT_ONCE])
            except Unspoken:
                return
            if not told:
                return
            self._shards.learn_sessions(told)

    # -- what is missing ----------------------------------------------------------------------------------------------

    def trouble(self) -> str:
        """As sentences; empty: nothing is missing."""
        said = []
        if self.hidden:
            read = self._grant(["Read", "Describe"], f"--topic {OFFSETS_TOPIC}")
            said.append(
                f"the records of groups ({OFFSETS_TOPIC}) cannot be read by this client, so groups are known by looks "
                "alone: there is no past, no generation and no time of a commit, and how a member went is not known; "
                f"where the Kafka is yours, grant it: {read}"
            )
        if self._refuses_groups():
            seen = self._grant(["Describe"], "--group '*'")
            said.append(
                "this client may not describe "
                + (plural(len(self._described.refused), "group") if self._described.refused else "the groups")
                + f", so what rebalances is not seen; grant it: {seen}; {self._grant(['Describe'], '--cluster')}"
            )
        return ". ".join(said) or next(iter(self._troubles.values()), "")

    def _refuses_groups(self) -> bool:
        """Whether groups that are there are not listed, or not described."""
        if self._described.refused:
            return True
        if not self._listed or self.groups:
            return False
        return self.hidden or bool(self._shards.live_groups())

    def _grant(self, operations: Sequence[str], resource: str) -> str:
        bootstrap = ",".join(map(describe_address, self._settings.upstream))
        return grant_command(bootstrap, self._settings.engine_kafka_sasl_username, operations, resource)


if TYPE_CHECKING:
    _LISTENER: type[LooksListener] = LookedKafka
