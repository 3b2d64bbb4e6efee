"""The node's topics, as a judge looks at them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from muster.storage.types import Topic


@dataclass(frozen=True, slots=True)
class NodeTopics:
    """`topics` are all that clients may know of; `auto_create`: one that is asked for is made."""

    topics: Callable[[], Mapping[str, Topic]]
    auto_create: bool

    def exists(self, name: str) -> bool:
        return name in self.topics()

    def by_id(self) -> dict[bytes, str]:
        return {topic.id: topic.name for topic in self.topics().values()}
