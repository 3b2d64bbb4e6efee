"""What stories can say of fences: `claim`."""

from collections.abc import Iterator
from typing import Any

from muster.coordinator.core.model.events import NO_PRODUCER, ClaimFence
from muster.coordinator.core.model.records import FenceStored
from tests.support.stories.story import pairs, topic_partition


class FenceStage:
    """Mixed into `Stage`, which knows the clients. Producer ids that nobody has had are 100, 101 and so on."""

    asked: Any
    request: Any
    client: Any
    next_producer = 100

    def do_claim(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """claim GROUP NAME topic-partition [generation=N] [id=MEMBER] [with=PRODUCER/EPOCH]."""
        group, name, place, *rest = words
        options = pairs(rest)
        client = self.client(group, name)
        producer, _, epoch = options.get("with", f"{NO_PRODUCER}/{NO_PRODUCER}").partition("/")
        event = ClaimFence(
            self.request("claim", client),
            group,
            options.get("id", client.member_id or name),
            *topic_partition(place),
            int(options.get("generation", client.generation)),
            int(producer),
            int(epoch),
            self.next_producer,
        )
        self.next_producer += 1
        yield from self.asked(event)

    def do_given_fence(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """given-fence GROUP topic-partition PRODUCER/EPOCH: as if it had been claimed so often."""
        group, place, ownership = words
        producer, _, epoch = ownership.partition("/")
        fence = FenceStored(group, *topic_partition(place), int(producer), int(epoch), (), "a", 1, self.now_ms)
        self.shard.apply(fence)
        self.records.append(fence)
        yield "ok"
