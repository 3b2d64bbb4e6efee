"""Nothing is decided differently for members that are told at once: the same story leaves the same records."""

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.records import Record
from tests.support.stories.script import Stage

TOLD = "REBALANCE_IN_PROGRESS"
Change = tuple[str, str]


class Play:
    """A classic group whose members listen or ask, as `pushed` says; whoever is called back joins and syncs at once."""

    def __init__(self, pushed: frozenset[str]) -> None:
        self.stage = Stage()
        self.pushed = pushed
        self.members: list[str] = []

    def run(self, changes: list[Change]) -> list[Record]:
        for act, name in changes:
            self.everyone_lives()
            called: list[str] = []
            if act == "join" and name not in self.members:
                called += self.heard(self.do(f"join g {name} session=10000"))
                self.members.append(name)
            elif act == "leave" and name in self.members:
                self.members.remove(name)
                called += self.heard(self.do(f"leave g {name}"))
            elif act == "grow" and name in self.members:
                called += self.heard(self.do(f"join g {name} topics=t,u{len(self.stage.records)}"))
            elif act == "wait":
                called += self.heard(self.do("advance 3s"))
            self.settle(called)
        return self.stage.records

    def everyone_lives(self) -> None:
        """Heartbeats are signs of life in both worlds; those who listen ask again for what comes next."""
        for name in self.members:
            self.do(f"heartbeat g {name}")
            if name in self.pushed:
                self.do(f"listen g {name}")

    def settle(self, called: list[str]) -> None:
        """Those who were told come back, and those who were not find out by asking, all in the same order."""
        asking = [name for name in self.members if name not in self.pushed]
        found_out = {name for name in asking if any(TOLD in line for line in self.do(f"heartbeat g {name}"))}
        for name in [member for member in self.members if member in found_out.union(called)]:
            self.do(f"join g {name}")
        if any("Preparing" in line for line in self.do("describe g")):
            self.do("advance 10s")
        plan = [f"{name}: t-{number}" for number, name in enumerate(self.members)]
        for name in self.members:
            self.do(f"sync g {name}", plan)

    def heard(self, lines: list[str]) -> list[str]:
        told = [line.split()[2].rstrip(":") for line in lines if "reply listen" in line and TOLD in line]
        assert self.pushed.issuperset(told)
        return told

    def do(self, command: str, lines: list[str] | None = None) -> list[str]:
        return self.stage.run([command, *(lines or [])])


names = st.sampled_from("abcde")
stories = st.lists(st.tuples(st.sampled_from(["join", "join", "leave", "grow", "wait"]), names), max_size=12)


@settings(max_examples=60, deadline=None)
@given(changes=stories, pushed=st.frozensets(names))
def test_any_mix_of_pushed_and_polled_members_leaves_the_same_records(
    changes: list[Change], pushed: frozenset[str]
) -> None:
    polled = Play(frozenset()).run(changes)
    assert Play(pushed).run(changes) == polled
    assert Play(frozenset("abcde")).run(changes) == polled


def test_the_stories_do_tell_of_rebalances() -> None:
    story = [("join", "a"), ("join", "b"), ("leave", "a"), ("join", "c")]
    play = Play(frozenset("abc"))
    play.run(story)
    described = " ".join(play.do("describe g"))
    assert "Stable generation=4" in described
    assert play.members == ["b", "c"]
