"""What a leader knows of its group's topics: the partition counts it planned with, and those it heard of since."""

from collections.abc import Iterable, Mapping

from muster.client.members.subscription import parse_topics
from muster.client.members.types import GroupMember


class TopicWatch:
    """Only the leader of a group acts on changed topics; for all others this stays empty."""

    def __init__(self) -> None:
        self._topics: frozenset[str] = frozenset()
        self._planned: dict[str, int] | None = None
        self._heard: dict[str, int] = {}

    def lead(self, members: Iterable[GroupMember]) -> None:
        """A generation begins that this member leads. What its plan is made from is not known yet."""
        self._topics = frozenset(topic for member in members for topic in parse_topics(member.metadata))
        self._planned = None

    def planned(self, counts: Mapping[str, int]) -> None:
        self._planned = dict(counts)
        # What was heard before the plan was made is older than the plan.
        self._heard.update(counts)

    def heard(self, counts: Mapping[str, int]) -> None:
        self._heard = dict(counts)

    def changes(self) -> str:
        """What is not as it was planned with, told once; "" when all is. A plan not seen fits what is heard first."""
        if not self._heard:
            return ""
        now = {topic: self._heard.get(topic, 0) for topic in sorted(self._topics)}
        before, self._planned = self._planned, now
        if before is None:
            return ""
        return ", ".join(f"{t} {before.get(t, 0)} -> {now[t]}" for t in now if now[t] != before.get(t, 0))
