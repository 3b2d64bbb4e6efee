"""From one node to many (CL-A10): what is published, and when a node is refused."""

import pytest

from muster.coordinator.replication.io.admin.topic_adoption import AdoptionPlan, plan_adoption
from muster.coordinator.zookeeper.errors import ForeignTopics

A, B = b"a" * 16, b"b" * 16


@pytest.mark.parametrize(
    ("own", "there", "adopts", "plan"),
    [
        ({}, {"a": A}, None, AdoptionPlan(())),
        ({"a": A, "b": B}, {}, None, AdoptionPlan(["a", "b"], begins=True)),
        ({"a": A, "b": B}, {}, "me", AdoptionPlan(["a", "b"])),  # a crash right after it began
        ({"a": A, "b": B}, {"a": A}, "me", AdoptionPlan(["b"])),
        ({"a": A}, {"a": A, "x": B}, None, AdoptionPlan([])),  # a crash before the log knew
        ({"a": A}, {"a": A}, "me", AdoptionPlan([])),
    ],
)
def test_what_is_published(
    own: dict[str, bytes], there: dict[str, bytes | None], adopts: str | None, plan: AdoptionPlan
) -> None:
    assert plan_adoption(own, there, adopts, "me") == plan


@pytest.mark.parametrize(
    ("there", "adopts", "named"),
    [
        ({"x": B}, None, "a, b"),
        ({"b": A}, None, "b"),  # another of that name
        ({"b": None}, None, "b"),  # of nodes beside each other, perhaps
        ({}, "other", "a, b"),
        ({"b": A}, "me", "b"),
    ],
)
def test_topics_that_the_cluster_does_not_know_are_refused_and_named(
    there: dict[str, bytes | None], adopts: str | None, named: str
) -> None:
    with pytest.raises(ForeignTopics, match=f"does not know: {named};"):
        plan_adoption({"a": A, "b": B}, there, adopts, "me")
