"""`muster consumer-groups` against what Kafka's own tool (4.1.1) does with the same flags, without a node."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from muster.cli.common.commands import CommandError, Exit
from muster.cli.groups.consumer_groups import print_descriptions, print_groups, reset_offsets
from muster.cli.main import cli
from muster.client.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from muster.coordinator.observability.read_model.groups import GroupDescription, PartitionLag

NO_OPTIONS: dict[str, Any] = {
    **dict.fromkeys(("to_datetime", "by_duration", "to_offset", "shift_by", "from_file")),
    **dict.fromkeys(("to_earliest", "to_latest", "to_current", "execute", "dry_run", "export", "all_topics"), False),
    "topics": (),
}
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class OneGroup:
    """An admin client of a node with topic `t` of two partitions, of which group `g` has a position in the first."""

    def __init__(self, committed: int | None = 3) -> None:
        self.positions = {} if committed is None else {P0: OffsetAndMetadata(committed, leader_epoch=7)}
        self.asked: list[Any] = []
        self.altered: list[Any] = []

    def list_groups(self, states: list[str], types: list[str]) -> list[Any]:
        self.asked.append((states, types))
        return []

    def describe_group(self, group: str) -> GroupDescription:
        return GroupDescription(group, "Empty", "consumer", "", 0, "", "n:1", ())

    def zookeeper_away(self) -> bool:
        return False

    def group_lag(self, group: str) -> list[PartitionLag]:
        return [PartitionLag(P0, 3, 0, 10, 7), PartitionLag(P1, None, 0, 10, 10)]

    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        return self.positions

    def list_offsets(
        self, times: dict[TopicPartition, int], isolation_level: str = ""
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {TopicPartition(*tp): OffsetAndTimestamp(0 if at == -2 else 10, -1) for tp, at in times.items()}

    def list_topics(self) -> dict[str, int]:
        return {"t": 2}

    def partitions(self, topic: str) -> list[int]:
        return [0, 1]

    def alter_offsets(self, group: str, plan: Any, reason: str = "") -> None:
        self.altered.append(dict(plan))


@pytest.mark.parametrize(
    ("states", "types"), [("bogus", None), ("Stable,bogus", None), (None, "bogus"), (None, "x,Classic")]
)
def test_a_state_or_type_that_there_is_not_is_refused(states: str | None, types: str | None) -> None:
    admin: Any = OneGroup()
    with pytest.raises(click.UsageError, match=r"is unknown; expected .*(Stable|classic)"):
        print_groups(admin, states, types)
    assert admin.asked == []


def test_states_and_types_are_taken_in_any_case() -> None:
    admin: Any = OneGroup()
    print_groups(admin, "stable, EMPTY", "Classic")
    assert admin.asked == [(["Stable", "Empty"], ["classic"])]


def reset(admin: Any, **options: Any) -> None:
    reset_offsets(admin, ["g"], NO_OPTIONS | options)


def test_to_current_gives_a_partition_without_a_position_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.cli.groups.consumer_groups.resolve_partitions", lambda admin, topics: [P0, P1])
    admin = OneGroup()
    reset(admin, topics=("t",), to_current=True, execute=True)
    assert admin.altered == [{P0: 3, P1: 10}]


def test_a_reset_that_moves_nothing_says_so_and_fails() -> None:
    admin = OneGroup(committed=None)
    with pytest.raises(CommandError, match="No position was moved: g has none") as refused:
        reset(admin, all_topics=True, to_earliest=True, execute=True)
    assert refused.value.code is Exit.NOT_FOUND
    assert admin.altered == []


@pytest.mark.parametrize("execute", [[], ["--execute"]], ids=["dry run", "execute"])
def test_so_does_one_by_muster_groups(monkeypatch: pytest.MonkeyPatch, execute: list[str]) -> None:
    admin = OneGroup(committed=None)
    monkeypatch.setattr("muster.cli.groups.offsets.connect_admin", lambda *given: nullcontext(admin))
    monkeypatch.setattr("muster.cli.groups.offsets.require_inactive", lambda admin, group: None)
    words = ["groups", "reset-offsets", "g", "--all-topics", "--to", "start", *execute]
    refused = CliRunner().invoke(cli, words, standalone_mode=False).exception
    assert isinstance(refused, CommandError)
    assert "No position was moved: g has none" in str(refused)
    assert refused.code is Exit.NOT_FOUND
    assert admin.altered == []


def test_a_plan_that_a_spreadsheet_has_saved_is_read(tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_bytes(b"\xef\xbb\xbft,0,5\r\n")
    admin = OneGroup()
    reset(admin, from_file=plan, execute=True)
    assert admin.altered == [{P0: 5}]


def test_verbose_has_the_leader_epoch_behind_the_partition(capsys: pytest.CaptureFixture[str]) -> None:
    admin: Any = OneGroup()
    print_descriptions(admin, ["g"], "offsets", verbose=True)
    heading, first, second = (line.split() for line in capsys.readouterr().out.splitlines() if line)
    assert heading[:5] == ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET"]
    assert first[:5] == ["g", "t", "0", "7", "3"]
    assert second[:5] == ["g", "t", "1", "-", "-"]
    print_descriptions(admin, ["g"], "offsets", verbose=False)
    assert "LEADER-EPOCH" not in capsys.readouterr().out
