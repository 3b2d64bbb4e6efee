"""What stories can say of offsets: `commit`, `fetch`, `delete-offsets`."""

from collections.abc import Iterator
from typing import Any

from muster.coordinator.core.model import events
from tests.support.stories.classic_stage import instance_from
from tests.support.stories.story import milliseconds, pairs, read_commit, topic_partition


class OffsetStage:
    """Mixed into `Stage`, which knows the clients."""

    asked: Any
    request: Any
    client: Any

    def do_commit(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """commit GROUP NAME topic-partition=offset[:metadata] ...; NAME `-` is a simple consumer.

        `by=WHO` is who asks as no member, `tool=yes`: he says that he is an operator's tool.
        """
        group, name, *rest = words
        simple = name == "-"
        client = self.client(group, name)
        offsets, options = read_commit(rest)
        event = events.OffsetCommit(
            self.request("commit", client),
            group,
            "" if simple else options.get("id", client.member_id),
            None if simple else instance_from(options, client),
            int(options.get("generation", -1 if simple else client.generation)),
            offsets,
            retention_ms=milliseconds(options["retention"]) if "retention" in options else None,
            missing_group_code_is_illegal_generation=int(options.get("v", 9)) < 9,
            operator=options.get("by", ""),
            by_tool="tool" in options,
        )
        yield from self.asked(event)

    def do_fetch(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """fetch GROUP [stable] topic-partition ...|all"""
        group, *rest = words
        stable = rest[:1] == ["stable"]
        rest = rest[stable:]
        wanted = None if rest == ["all"] else tuple(topic_partition(word) for word in rest)
        yield from self.asked(events.OffsetFetch(self.request("fetch", self.client(group, "*")), group, wanted, stable))

    def do_delete_offsets(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """delete-offsets GROUP [by=WHO] topic-partition ..."""
        group, *rest = words
        options = pairs([word for word in rest if "=" in word])
        wanted = tuple(topic_partition(word) for word in rest if "=" not in word)
        request = self.request("delete-offsets", self.client(group, "*"))
        yield from self.asked(events.OffsetDelete(request, group, wanted, options.get("by", "")))
