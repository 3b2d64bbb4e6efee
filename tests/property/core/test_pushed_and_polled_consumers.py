"""KIP-848 members that are told at once and those that ask come to the same epochs, targets and shares."""

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.records import CurrentStored, RebalanceSettled, Record
from tests.support.stories.script import Stage

Change = tuple[str, str]
Share = dict[str, list[tuple[int, frozenset[int]]]]
ROUNDS = 20


class Play:
    """A group whose members listen or ask, as `pushed` says; whoever hears of an assignment takes it and says so."""

    def __init__(self, pushed: frozenset[str]) -> None:
        self.stage = Stage()
        self.pushed = pushed
        self.members: list[str] = []
        self.do("limits consumer_assignment_interval_ms=0")
        self.do("topics foo=7")

    def run(self, changes: list[Change]) -> tuple[list[Record], Share]:
        for act, name in changes:
            lines: list[str] = []
            if act == "enter" and name not in self.members:
                self.members.append(name)
                lines = self.do(f"enter g {name} topics=foo,bar")
            elif act == "depart" and name in self.members:
                self.members.remove(name)
                lines = self.do(f"depart g {name}")
                self.stage.listens.pop(("g", name), None)
            elif act == "subscribe" and name in self.members:
                way = "ride" if name in self.pushed else "beat"
                lines = self.do(f"{way} g {name} topics=foo")
                lines += self.do(f"listen g {name}") if name in self.pushed else []
            elif act == "grow":
                lines = self.do(f"topics foo=7 bar={len(self.stage.records) % 5 + 1}")
            self.settle(lines)
        decided = [r for r in self.stage.records if not isinstance(r, CurrentStored | RebalanceSettled)]
        return decided, self.shares()

    def settle(self, lines: list[str]) -> None:
        """Until nobody hears anything new."""
        told = self.told(lines)
        for _ in range(ROUNDS):
            lines = []
            for name in self.members:
                if name not in self.pushed:
                    lines += self.do(f"beat g {name} owned=all")
                elif name in told or ("g", name) not in self.stage.listens:
                    lines += self.do(f"ride g {name} heard=yes owned=all")
                    lines += self.do(f"listen g {name}")
            told = self.told(lines)
            if not any(line.startswith("append") for line in lines) and not told:
                return
        raise AssertionError(f"not settled after {ROUNDS} rounds: {lines}")

    def told(self, lines: list[str]) -> set[str]:
        """Who was pushed something, or was given something in answer: they have to say that they heard."""
        news = [line for line in lines if line.startswith(("reply listen", "reply ride"))]
        return {
            line.split()[2].rstrip(":")
            for line in news
            if "epoch=" in line and (line.startswith("reply listen") or " has " in line)
        }

    def shares(self) -> Share:
        group = self.stage.shard.consumer_groups.get("g")
        members = group.members if group is not None else {}
        return {
            name: [(member.epoch, frozenset(partitions)) for _, partitions in sorted(member.assigned.items())]
            for name, member in members.items()
        }

    def do(self, command: str) -> list[str]:
        return self.stage.run([command])


names = st.sampled_from(["m1", "m2", "m3", "m4"])
acts = st.sampled_from(["enter", "enter", "depart", "subscribe", "grow"])
stories = st.lists(st.tuples(acts, names), max_size=10)


@settings(max_examples=60, deadline=None)
@given(changes=stories, pushed=st.frozensets(names))
def test_any_mix_comes_to_the_same_decisions_and_shares(changes: list[Change], pushed: frozenset[str]) -> None:
    polled = Play(frozenset()).run(changes)
    assert Play(pushed).run(changes) == polled
    assert Play(frozenset(["m1", "m2", "m3", "m4"])).run(changes) == polled


def test_the_stories_do_hand_over() -> None:
    decided, shares = Play(frozenset(["m1", "m2"])).run([("enter", "m1"), ("enter", "m2"), ("grow", "m1")])
    assert len(decided) > 6
    assert sorted(sum(len(partitions) for _, partitions in share) > 2 for share in shares.values()) == [True, True]
