"""What of the upstream is not as it should be, for operators: topics that answers leave out, members past this node,
clients that may too much."""

from collections.abc import Callable, Mapping
from typing import Final

from muster.coordinator.kafka_backend.foreign_member_guard import (
    ForeignMemberGuard,
    ForeignMembers,
    foreign_members_sentence,
)
from muster.coordinator.kafka_backend.proxy.proxy_principal import ProxyPrincipalCheck
from muster.coordinator.kafka_backend.upstream.engine_topics import UpstreamTopics
from muster.coordinator.kafka_backend.upstream.upstream import Upstream
from muster.coordinator.runtime.conditions import Conditions
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.server.reports import report_contained

UNSEEN_PATIENCE_MS: Final = 30_000
"""How much longer than a deleted topic takes to be known as such one is left out before somebody is told."""

NAMED: Final = 5

UNSEEN: Final = "topics-unseen"
FOREIGN: Final = "foreign-members"
PRINCIPAL: Final = "proxy-principal"


class UpstreamDiagnostics:
    """`start` and `stop`; `look` every now and then."""

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
        self._guard = ForeignMemberGuard(
            upstream,
            ours,
            on_bug=report_optional_bug("looking for members past this node"),
        )
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

    def look(self, conditions: Conditions) -> None:
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
