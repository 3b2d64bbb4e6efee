"""Groups go where Kafka would put them."""

import pytest

from muster.coordinator.runtime.shards import java_hash, partition_for

VECTORS = [
    ("", 0, 0, 0),
    ("a", 97, 47, 1),
    ("group-id", 506313513, 13, 9),
    ("test-group", 627841412, 12, 4),
    ("connect-cluster", 1440343063, 13, 7),
    ("消费者组", 871131088, 38, 0),
    ("grp-😀", -1235730613, 13, 5),
    ("polygenelubricants", -2147483648, 0, 0),
]


@pytest.mark.parametrize(("group_id", "code", "of_50", "of_16"), VECTORS)
def test_the_hash_is_javas_and_the_partition_kafkas(group_id: str, code: int, of_50: int, of_16: int) -> None:
    assert java_hash(group_id) == code
    assert partition_for(group_id, 50) == of_50
    assert partition_for(group_id, 16) == of_16


def test_a_lone_surrogate_counts_as_one_unit() -> None:
    assert java_hash("\ud83d") == 0xD83D


def test_no_partitions_is_an_error_that_names_the_group() -> None:
    with pytest.raises(ValueError, match=r"group 'g' over 0 partitions; at least 1"):
        partition_for("g", 0)
