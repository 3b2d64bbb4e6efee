"""A snapshot that the coordinator rebuilds is written member by member: the text is the one that `Snapshot` writes."""

import pytest

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription
from muster.coordinator.core.model import plan

PARTITIONS = {"b": 3, "a": 2, "größe": 1, "unread": 9}


def members_of(count: int, size: int) -> list[tuple[str, str | None, bytes]]:
    topics = ("b", "größe", "a", "unknown")
    return [
        (
            f"member-{number}",
            f'"{number}"' if number % 2 else None,
            encode_subscription(
                Subscription(number % 4, topics[: 1 + number % 4], bytes(size), {"b": (number,)}, number, "rack")
            ),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "sticky", ""])
@pytest.mark.parametrize(
    ("count", "size"), [(0, 0), (4, 0), (50, 7), (4, 2 * plan.REMEMBERED_BYTES)], ids=["none", "few", "many", "long"]
)
def test_the_text_is_that_of_the_rebuilt_snapshot(assignor: str, count: int, size: int) -> None:
    members = members_of(count, size)
    whole = plan.rebuilt_snapshot(assignor, {name: (at, blob) for name, at, blob in members}, PARTITIONS)
    assert whole is not None
    for _ in range(2):  # read and written, then remembered
        assert plan.rebuilt_snapshot_json(assignor, members, PARTITIONS) == whole.to_json()


def test_there_is_no_text_when_a_subscription_cannot_be_read() -> None:
    assert plan.rebuilt_snapshot_json("range", [*members_of(2, 0), ("other", None, b"\x00")], PARTITIONS) is None
