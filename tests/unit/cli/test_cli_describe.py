"""What `muster groups describe` says on standard error of who plans for a group."""

from dataclasses import replace

import pytest

from muster.cli.groups.description import print_planner
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
