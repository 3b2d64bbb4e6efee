"""What is said of an offsets topic that cannot be read."""

import pytest

from muster.coordinator.watch.offsets_topic_reader import describe_missing, describe_refusal

GRANTED = "--operation Read --operation Describe --topic __consumer_offsets"


@pytest.mark.parametrize("told", [describe_missing(29), describe_refusal(29), describe_missing(3)])
def test_missing_rights_come_with_the_command_that_grants_them(told: str) -> None:
    assert "lacks READ and DESCRIBE" in told
    assert GRANTED in told


def test_a_topic_that_nobody_has_made_yet_is_told_from_one_without_leaders() -> None:
    assert "no group has committed anything" in describe_missing(3)
    assert describe_missing(0) == "no broker leads it now"


def test_what_else_a_leader_says_is_told_by_name() -> None:
    assert describe_refusal(6) == "its leader says NOT_LEADER_OR_FOLLOWER (6)"
