"""What `muster groups describe` says on standard error of a group: who plans for it, and what is not shown."""

from dataclasses import replace

import pytest

from muster.cli.groups.description import print_highlights, print_planner
from muster.client.described import GroupDescription, GroupHolds
from muster.coordinator.observability.views.groups import planner_words, state_row

LED = GroupDescription("g", "Stable", "consumer", "range", 3, "a-1", "here:1", ())
SET = replace(LED, leader="", planned_there="lag", assignor_is_set=True)
ASKED = replace(LED, leader="", planned_there="lag")
KEPT_OUT = replace(LED, kept_out="assignor=lag does not count: member a-1 offers stream")


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (LED, "a member"),
        (SET, "the coordinator by lag, as set"),
        (ASKED, "the coordinator by lag, as members ask"),
        (replace(LED, leader=""), None),
    ],
    ids=["led", "set", "asked", "nobody is there"],
)
def test_who_plans_is_a_column(group: GroupDescription, words: str | None) -> None:
    assert planner_words(group) == words
    assert state_row(group, GroupHolds())["planned_by"] == words


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (LED, ""),
        (ASKED, ""),
        (SET, "Consumer group 'g' is planned by the coordinator by lag, as set.\n"),
        (
            KEPT_OUT,
            "Warning: Consumer group 'g' is planned by a member: assignor=lag does not count: member a-1 offers "
            "stream.\n",
        ),
    ],
    ids=["led", "asked", "set", "kept out"],
)
def test_an_operators_word_is_answered_for(
    group: GroupDescription, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_planner(group)
    captured = capsys.readouterr()
    assert (captured.out, " ".join(captured.err.split())) == ("", " ".join(said.split()))


@pytest.mark.parametrize("hidden", [0, 2])
def test_what_the_reader_may_not_describe_is_said_to_be_left_out(
    hidden: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It read like a group that has read everything."""
    print_highlights(replace(LED, hidden_topics=hidden))
    said = " ".join(capsys.readouterr().err.split())
    assert ("2 topics that you may not describe are not shown" in said) is (hidden == 2)
