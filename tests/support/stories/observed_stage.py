"""The words of stories about groups that ZooKeeper holds and a node only watches."""

from collections.abc import Iterator
from typing import Any

from muster.coordinator.core.model.events import GroupObserved, GroupUnseen, ObservedMember
from tests.support.stories.story import milliseconds, pairs, topic_partition

AROUND = ("brokers", "ended", "gone")


class ObservedStage:
    """Mixed into the stage; `step` and `shard` are the stage's."""

    step: Any
    shard: Any

    def do_see(self, words: list[str], lines: list[str]) -> Iterator[str]:
        """see GROUP [was-there] [brokers=1,2] [ended=a] [gone=t-0=20ms] topic=partitions ...: what ZooKeeper shows now.

        A line for each member: `a: t-0 t-1*` claims two partitions, the second one anew; `a (u): ...` reads only u;
        `a (/t.*/ t u)` reads what a pattern finds. `-a: t-0` is a claim of somebody who is gone.
        """
        group, *rest = words
        options = pairs([word for word in rest if "=" in word])
        partitions = {topic: int(count) for topic, count in options.items() if topic not in AROUND}
        members, owners, renewed = [], {}, set()
        gone = pairs([options.pop("gone")]) if "gone" in options else {}
        for line in lines:
            head, _, claims = line.partition(":")
            name, _, reads = head.partition(" (")
            if not name.startswith("-"):
                members.append(member(name, reads.removesuffix(")").split() or list(partitions)))
            for claim in claims.split():
                tp = topic_partition(claim.removesuffix("*"))
                owners[tp] = name.removeprefix("-")
                if claim.endswith("*"):
                    renewed.add(tp)
        seen = GroupObserved(
            group,
            tuple(members),
            owners,
            partitions,
            tuple(int(number) for number in options.get("brokers", "1").split(",")),
            frozenset(renewed),
            {topic_partition(tp): milliseconds(ago) for tp, ago in gone.items()},
            frozenset(options.get("ended", "").split(",")) - {""},
            "was-there" in rest,
        )
        yield from self.step(seen)
        observed = self.shard.state.observed(group)
        assert observed is not None
        late = f", waiting for {','.join(observed.late)}" if observed.late else ""
        yield f"{observed.state.value}{late}"

    def do_unsee(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """unsee GROUP: its directory is gone."""
        yield from self.step(GroupUnseen(words[0])) or ["ok"]


def member(name: str, reads: list[str]) -> ObservedMember:
    pattern = "white_list" if reads and reads[0].startswith("/") else "static"
    topics = reads[1:] if pattern == "white_list" else reads
    return ObservedMember(name, tuple(topics), pattern, "host")
