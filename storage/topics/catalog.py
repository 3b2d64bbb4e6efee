"""Which topics there are, and which are planned.

The catalog is one small file in the data directory, replaced as a whole and checked when read. A `TopicPlan` is a topic
that is to be made or to grow: checked, and not begun.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from crc32c import crc32c
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from muster.storage.config import LogSettings, TopicSettings
from muster.storage.errors import DataDirectoryError, InvalidConfig, InvalidTopicName, StorageError
from muster.storage.files import Files, read_file, replace_file
from muster.storage.settings_text import os_error_remedy
from muster.storage.types import Topic

# The catalog file
# ----------------

CATALOG = "topics.json"
MAX_NAME = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

PRIVATE_TOPICS = frozenset({"__security"})
"""Nobody but the node itself is told of them, whatever they ask: they neither read nor write, make nor change them."""


class CatalogEntry(BaseModel):
    """One topic in the catalog file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    id: str
    partitions: int = Field(ge=1)
    configs: dict[str, str]
    internal: bool
    deleting: bool = False
    """Its deletion has begun and must be finished."""
    held: tuple[int, ...] | None = None
    """See `Topic.held`. Not written where all of it is here, so that programs that know of no cluster read the file."""
    leaving: tuple[int, ...] | None = None
    """Partitions whose removal from here has begun and must be finished."""

    def topic(self) -> Topic:
        return Topic(self.name, parse_id(self.id), self.partitions, dict(self.configs), self.internal, self.held)

    @property
    def compacted(self) -> bool:
        return "compact" in self.configs.get("cleanup.policy", "")

    @property
    def holed(self) -> bool:
        """Whether offsets may be missing even where it is written to: its leader may have compacted them away."""
        return self.compacted and self.held is not None

    @property
    def going(self) -> Sequence[int]:
        """Partitions whose files are to be removed."""
        left = self.leaving or ()
        return [*self.topic().here, *left] if self.deleting else left

    def without_going(self) -> "CatalogEntry | None":
        """What stays once they are; None when nothing does."""
        return None if self.deleting or self.held == () else self.model_copy(update={"leaving": None})

    @classmethod
    def of(cls, topic: Topic, *, deleting: bool = False) -> "CatalogEntry":
        return cls(
            name=topic.name,
            id=format_id(topic.id),
            partitions=topic.partitions,
            configs=dict(topic.configs),
            internal=topic.internal,
            deleting=deleting,
            held=topic.held,
        )


class CatalogFile(BaseModel):
    """The whole file; `checksum` is the CRC-32C of the topics as written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = Field(ge=1, le=1)
    checksum: int
    topics: tuple[CatalogEntry, ...]


def save_catalog(files: Files, data_dir: str, entries: Mapping[str, CatalogEntry]) -> None:
    topics = tuple(entries[name] for name in sorted(entries))
    whole = CatalogFile(version=1, checksum=_checksum(topics), topics=topics)
    replace_file(files, f"{data_dir}/{CATALOG}", whole.model_dump_json(indent=1, exclude_none=True).encode() + b"\n")


def load_catalog(files: Files, data_dir: str) -> dict[str, CatalogEntry]:
    """The topics by name; DataDirectoryError when the file is missing or damaged."""
    path = f"{data_dir}/{CATALOG}"
    try:
        whole = CatalogFile.model_validate_json(read_file(files, path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise DataDirectoryError(
            f"The topic catalog {path} cannot be read: {where}: {first['msg']}. Restore it from a copy."
        ) from None
    except OSError as error:
        why = error.strerror or error
        raise DataDirectoryError(f"The topic catalog {path} cannot be read: {why}. Restore it from a copy.") from None
    if _checksum(whole.topics) != whole.checksum:
        raise DataDirectoryError(f"The topic catalog {path} fails its checksum. Restore it from a copy.")
    return {entry.name: entry for entry in whole.topics}


def _checksum(topics: tuple[CatalogEntry, ...]) -> int:
    return crc32c("\n".join(entry.model_dump_json(exclude_none=True) for entry in topics).encode())


def colliding_name(name: str) -> str:
    """Kafka's metrics write '.' as '_', so two names that differ only there are one."""
    return name.replace(".", "_")


def check_topic_name(name: str, existing: Mapping[str, str]) -> None:
    """Kafka's rules for topic names; InvalidTopic says which is broken. `existing` names are keyed by
    `colliding_name`.
    """
    if not _LEGAL_NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidTopicName(
            f"'{name[:300]}' is no topic name; expected 1 to {MAX_NAME} letters, digits, '.', '_' or '-', "
            "and not '.' or '..'."
        )
    other = existing.get(colliding_name(name), name)
    if other != name:
        raise InvalidTopicName(f"Topic '{name}' collides with topic '{other}': '.' and '_' count as the same.")


def format_id(topic_id: bytes) -> str:
    """The 22 characters of a 16-byte id, as Kafka prints them."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def parse_id(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


# Planned topics and changes
# --------------------------


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


def plan_topic_change(topic: Topic, node: LogSettings, changes: Mapping[str, str | None]) -> TopicConfigChange:
    """The topic with these settings; None stands for the node's default. Raises InvalidConfig."""
    configs = {key: value for key, value in {**topic.configs, **changes}.items() if value is not None}
    node.check_given(changes)
    settings = node.for_topic(configs)
    if node.for_topic(topic.configs).compacted and not settings.compacted:
        raise InvalidConfig(
            f"'cleanup.policy' of topic '{topic.name}' cannot become {settings.cleanup_policy!r}: compaction leaves "
            "gaps that would look like damage then. Keep compact in it, or make a new topic and copy the records."
        )
    return TopicConfigChange(replace(topic, configs=configs), settings)


def check_not_internal(topic: Topic) -> None:
    """Raises InvalidTopicName for a topic that only the node itself writes to."""
    if topic.internal:
        raise InvalidTopicName(f"Topic '{topic.name}' is internal; only the node itself writes to it.")


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
