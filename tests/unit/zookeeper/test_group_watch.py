"""A group as it stands in ZooKeeper, looked at while it changes: a tree in memory, and transactions in between."""

import asyncio
import json
from collections.abc import Callable
from typing import Literal

import pytest

from muster.coordinator.core.model.events import GroupObserved
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.errors import ConnectionLost
from muster.coordinator.zookeeper.group_observer import ClusterSnapshot, GroupWatch
from muster.coordinator.zookeeper.session import WatchEvent, Znode

GROUP = "g"
AROUND = ClusterSnapshot((1,), {"t": 2})
IDS, OWNERS, CLAIMS = layout.consumer_ids_path(GROUP), layout.owners_path(GROUP), layout.topic_owners_path(GROUP, "t")
Told = Callable[[WatchEvent], None]


class Tree:
    """A session and the znodes it sees, each with the number of the transaction that made it."""

    def __init__(self) -> None:
        self.zxid = 0
        self.znodes: dict[str, tuple[bytes, int]] = {}
        self.changed_at: dict[str, int] = {IDS: 0, OWNERS: 0, CLAIMS: 0}
        self.watches: dict[str, list[Told]] = {}
        self.before_get: Callable[[], None] | None = None
        self.refused = ""
        """The path whose next read is not answered."""

    def transaction(self, made: dict[str, bytes], gone: tuple[str, ...] = ()) -> None:
        self.zxid += 1
        for path in gone:
            del self.znodes[path]
        self.znodes |= {path: (data, self.zxid) for path, data in made.items()}
        for path in (*made, *gone):
            folder = path.rpartition("/")[0]
            self.changed_at[folder] = self.zxid
            self.fire(folder, "children")
        for path in gone:
            self.fire(path, "deleted")

    def fire(self, path: str, kind: Literal["children", "changed", "deleted"]) -> None:
        for told in self.watches.pop(path, []):
            told(WatchEvent(kind, path))

    def break_connection(self) -> None:
        """All watches go with it, and say so."""
        broken, self.watches = self.watches, {}
        for told in (each for set_there in broken.values() for each in set_there):
            told(WatchEvent("session", ""))

    def answer(self, path: str) -> None:
        if path == self.refused:
            self.refused = ""
            raise ConnectionLost(path)

    async def listing(self, path: str, watch: Told) -> tuple[list[str], int] | None:
        self.answer(path)
        self.watches.setdefault(path, []).append(watch)
        below = [name for name in (*self.znodes, *self.changed_at) if name.rpartition("/")[0] == path]
        return sorted(name.rpartition("/")[2] for name in below), self.changed_at[path]

    async def get(self, path: str, watch: Told | None = None) -> Znode | None:
        between, self.before_get = self.before_get, None
        if between is not None:
            between()
        self.answer(path)
        if path not in self.znodes:
            return None
        if watch is not None:
            self.watches.setdefault(path, []).append(watch)
        data, made = self.znodes[path]
        return Znode(data, 0, 0, 0, 0, made)


def registered(member: str) -> dict[str, bytes]:
    body = {"version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": "0"}
    return {layout.consumer_path(GROUP, member): json.dumps(body).encode()}


def claim(member: str, partition: int) -> dict[str, bytes]:
    return {layout.owner_path(GROUP, "t", partition): f"{member}-0".encode()}


def looks(*between: Callable[[Tree], None]) -> list[GroupObserved]:
    """What is seen of a group in which `a` owns everything: at first, and after each of these."""

    async def story() -> list[GroupObserved]:
        tree = Tree()
        tree.transaction(registered("a"))
        tree.transaction(claim("a", 0) | claim("a", 1))
        watch = GroupWatch(tree, GROUP, lambda: None, was_there=False)  # type: ignore[arg-type]
        seen = [await watch.observe_group(AROUND)]
        for change in between:
            change(tree)
            if tree.refused:
                with pytest.raises(ConnectionLost):
                    await watch.observe_group(AROUND)
            seen.append(await watch.observe_group(AROUND))
        return seen

    return asyncio.run(story())


ALL = (layout.owner_path(GROUP, "t", 0), layout.owner_path(GROUP, "t", 1), layout.consumer_path(GROUP, "a"))


def session_ends(tree: Tree) -> None:
    tree.transaction({}, ALL)


def session_ends_between_the_list_and_its_claims(tree: Tree) -> None:
    # A watch that went off for another reason makes the look read a claim again.
    tree.fire(ALL[0], "changed")
    tree.fire(ALL[1], "changed")
    tree.before_get = lambda: tree.transaction({}, ALL)


def session_ends_and_claims_cannot_be_read(tree: Tree) -> None:
    session_ends(tree)
    tree.refused = OWNERS


def leaves_in_order(tree: Tree) -> None:
    for path in ALL:
        tree.transaction({}, (path,))


def lets_go(tree: Tree) -> None:
    tree.transaction({}, ALL[:1])
    tree.transaction({}, ALL[1:2])


def goes(tree: Tree) -> None:
    tree.transaction({}, ALL[2:])


@pytest.mark.parametrize(
    ("changes", "ended"),
    [
        ([session_ends], {"a"}),
        ([session_ends_between_the_list_and_its_claims], {"a"}),
        ([session_ends_and_claims_cannot_be_read], {"a"}),
        ([leaves_in_order], set()),
        ([lets_go, goes], set()),
    ],
)
def test_who_died_is_told_from_who_left(changes: list[Callable[[Tree], None]], ended: set[str]) -> None:
    first, *between, last = looks(*changes)
    assert first.owners == {("t", 0): "a", ("t", 1): "a"}
    assert all(not seen.ended for seen in between)
    assert (last.members, last.owners, last.ended) == ((), {}, frozenset(ended))


def in_order(tree: Tree, *steps: Callable[[], None]) -> None:
    """One of these before each of the next reads."""
    first, *rest = steps

    def step() -> None:
        if rest:
            in_order(tree, *rest)
        first()

    tree.before_get = step


def test_who_died_while_the_last_try_read_its_claims_is_told_from_who_left() -> None:
    def doubted(tree: Tree) -> None:
        for path in ALL[:2]:
            tree.fire(path, "changed")

    def others_come_and_the_session_ends(tree: Tree) -> None:
        doubted(tree)
        in_order(
            tree,
            lambda: tree.transaction(registered("b")),
            lambda: None,
            lambda: tree.transaction(registered("c")),
            lambda: doubted(tree),
            lambda: tree.transaction({}, ALL),
        )

    _, before, after = looks(others_come_and_the_session_ends, lambda tree: None)
    assert ([member.id for member in before.members], before.owners) == (["a", "b", "c"], {})
    assert ([member.id for member in after.members], after.ended) == (["b", "c"], {"a"})


def test_claims_are_never_seen_with_the_members_of_before() -> None:
    """`a` leaves while claims are read, and `b` claims what it had: they belong together, or nobody would have left."""

    def hands_over(tree: Tree) -> None:
        tree.transaction({}, ALL[:1])
        tree.transaction({}, ALL[1:2])
        tree.transaction({}, ALL[2:])
        tree.transaction(claim("b", 0) | claim("b", 1))

    def hands_over_between(tree: Tree) -> None:
        tree.transaction(registered("b"))
        tree.fire(ALL[0], "changed")
        tree.fire(ALL[1], "changed")
        # The registration of `b` is read first, then the claims.
        tree.before_get = lambda: setattr(tree, "before_get", lambda: hands_over(tree))

    _, last = looks(hands_over_between)
    assert [member.id for member in last.members] == ["b"]
    assert last.owners == {("t", 0): "b", ("t", 1): "b"}


def test_what_was_read_by_a_look_that_failed_is_read_again() -> None:
    def hands_over_and_one_claim_cannot_be_read(tree: Tree) -> None:
        tree.transaction(registered("b"))
        for partition in (0, 1):
            tree.transaction({}, (layout.owner_path(GROUP, "t", partition),))
            tree.transaction(claim("b", partition))
        tree.refused = layout.owner_path(GROUP, "t", 1)

    _, last = looks(hands_over_and_one_claim_cannot_be_read)
    assert last.owners == {("t", 0): "b", ("t", 1): "b"}


def test_claims_read_before_the_connection_broke_are_not_relied_on() -> None:
    """The look goes on when it is back, but nobody would say that one of them went."""

    def claims_and_the_connection_breaks_before_all_is_read(tree: Tree) -> None:
        def somebody_comes() -> None:
            tree.transaction(registered("c"))
            tree.before_get = tree.break_connection  # read anew for the one who came

        def next_read() -> None:
            tree.before_get = somebody_comes

        tree.transaction(registered("b"))
        tree.transaction(claim("b", 0) | claim("b", 1))
        tree.before_get = next_read

    def hands_over(tree: Tree) -> None:
        tree.transaction({}, ALL[:1])
        tree.transaction(claim("c", 0))

    *_, before, after = looks(lets_go, claims_and_the_connection_breaks_before_all_is_read, hands_over)
    assert before.owners == {("t", 0): "b", ("t", 1): "b"}
    assert after.owners == {("t", 0): "c", ("t", 1): "b"}
