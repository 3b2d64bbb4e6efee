"""A topic that is to be made or to grow, looked at and not begun."""

from collections.abc import Sequence
from typing import NamedTuple

from muster.storage.config import TopicSettings
from muster.storage.errors import StorageError
from muster.storage.topics.catalog import colliding_name
from muster.storage.types import Topic
from muster.storage.wording import os_error_remedy


class TopicPlan(NamedTuple):
    """`topic` as it will be; its partitions from `first` on are to be made."""

    topic: Topic
    first: int
    settings: TopicSettings

    @property
    def more(self) -> int:
        """How many partitions come."""
        return self.topic.partitions - self.first

    def failed(self, data_dir: str, error: OSError) -> StorageError:
        return StorageError(
            f"Could not create partitions of '{self.topic.name}' in {data_dir}: {error.strerror or error}. "
            f"What to do: {os_error_remedy(error)}, then try again."
        )


class TopicConfigChange(NamedTuple):
    """A topic as it will be with other settings, and what then holds for its logs."""

    topic: Topic
    settings: TopicSettings


class TopicPlans:
    """What one call plans, so that each topic is held against those before it as against those that are there."""

    def __init__(self) -> None:
        self.alike: dict[str, str] = {}
        self.coming = 0
        """Partitions of all plans so far."""

    def add(self, plan: TopicPlan) -> TopicPlan:
        self.alike[colliding_name(plan.topic.name)] = plan.topic.name
        self.coming += plan.more
        return plan


def describe_topics(names: Sequence[str]) -> str:
    """One topic by its name, of many the first and their number, as a sentence begins.

    >>> describe_topics(["a"]), describe_topics(["a", "b", "c"])
    ("Topic 'a'", "Topic 'a' and 2 more")
    """
    return f"Topic '{names[0]}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
