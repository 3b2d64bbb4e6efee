"""What `muster doctor` makes of a cluster in which some shards cannot tell of their groups."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from muster.cli.node_polling import NodePoller, gather_facts
from muster.client.described import GroupDescription, GroupListing, NodeStatus
from muster.client.errors import AuthorizationError, ClientError, GroupNotFound
from muster.coordinator.observability.doctor.model import DoctorFacts


class Operator:
    """The admin client of a cluster that tells of `there`, and of `silent` only that there are such groups."""

    def __init__(self, there: Sequence[str], silent: Sequence[str] = (), untold: str = "") -> None:
        self._there, self._silent, self._untold = there, silent, untold

    async def node_status(self) -> NodeStatus:
        return NodeStatus(1, ())

    async def list_groups(self, *, missing: Callable[[str], None] = str) -> list[GroupListing]:
        if self._untold:
            missing(self._untold)
        return [GroupListing(name, "Stable", "consumer", "classic") for name in (*self._there, *self._silent)]

    async def describe_groups(self, names: Sequence[str]) -> list[GroupDescription]:
        made = {name: GroupDescription(name, "Empty", "consumer", "range", 1, "", "n:1", ()) for name in self._there}
        return [made[name] for name in names if name in made]

    async def list_topics(self, *, include_internal: bool) -> dict[str, int]:
        return {"t": 1}

    async def describe_node(self) -> dict[str, str]:
        return {}

    async def explain(self, group: str, **more: Any) -> list[Any]:
        return []

    async def group_lag(self, group: str, **more: Any) -> list[Any]:
        return []

    async def group_holds(self, group: str) -> Any:
        raise AssertionError("nobody is without partitions")


def gathered(operator: Any, *names: str) -> tuple[DoctorFacts, list[str]]:
    told: list[str] = []
    return asyncio.run(gather_facts(operator, names, 0, told.append)), told


def test_what_cannot_be_looked_at_is_named_and_the_rest_is_looked_at() -> None:
    """One shard without a lease: `muster doctor` told nothing at all."""
    facts, told = gathered(Operator(["a"], ["b"], "some of n:1: COORDINATOR_NOT_AVAILABLE: shard 7 cannot tell"))
    assert [group.id for group in facts.groups] == ["a"]
    assert facts.untold == ("some of n:1: COORDINATOR_NOT_AVAILABLE: shard 7 cannot tell",)
    assert told == ["group 'b' could not be looked at: it is gone, or its coordinator cannot tell of it right now"]


def test_a_group_that_is_named_is_not_there_only_if_all_are_told_of() -> None:
    with pytest.raises(GroupNotFound):
        gathered(Operator(["a"]), "c")
    facts, told = gathered(Operator(["a"], untold="some of n:1"), "c")
    assert (facts.groups, facts.untold, len(told)) == ((), ("some of n:1",), 1)


class GroupsOnly(Operator):
    """Of somebody who may describe groups, and nothing of the cluster."""

    async def node_status(self) -> NodeStatus:
        raise AuthorizationError("asking what is wrong: CLUSTER_AUTHORIZATION_FAILED")


def test_who_may_only_see_groups_is_told_of_them_by_doctor_and_top() -> None:
    facts, told = gathered(GroupsOnly(["a"]))
    assert [group.id for group in facts.groups] == ["a"]
    assert told == ["the node itself could not be looked at: that needs DESCRIBE on the cluster"]
    operator: Any = GroupsOnly(["a", "b"])
    picture = asyncio.run(NodePoller(operator).poll_node(None))
    assert [line.group.id for line in picture.lines] == ["a", "b"]


def test_top_shows_the_groups_that_it_is_told_of_and_why_others_are_missing() -> None:
    operator: Any = Operator(["a"], untold="some of n:1")
    picture = asyncio.run(NodePoller(operator).poll_node(None))
    assert ([line.group.id for line in picture.lines], picture.untold) == (["a"], ("some of n:1",))
    nobody: Any = Operator([], untold="n:1 does not answer")
    with pytest.raises(ClientError, match="n:1 does not answer"):
        asyncio.run(NodePoller(nobody).poll_node(None))
