"""Records that retention removed before a group read them: what is shown of them, and by which figure."""

from muster.assignors.data.values import readable_lag
from muster.coordinator.observability.read_model.groups import PartitionLag, TopicPartition
from muster.coordinator.observability.views.groups import offset_row, removed_words


def position(partition: int, committed: int | None, start: int, end: int) -> PartitionLag:
    return PartitionLag(TopicPartition("orders", partition), committed, start, end, readable_lag(committed, start, end))


def test_a_position_below_the_start_of_the_log_lags_by_what_can_still_be_read() -> None:
    seen = position(0, 5, 4_995, 5_000)
    assert (seen.lag, seen.removed, seen.kafka_lag) == (5, 4_990, 4_995)


def test_a_position_within_the_log_has_one_lag() -> None:
    for seen in (position(0, 4_995, 10, 5_000), position(0, None, 4_995, 5_000)):
        assert (seen.lag, seen.removed, seen.kafka_lag) == (5, 0, 5)


def test_a_position_beyond_the_end_has_lost_nothing() -> None:
    seen = position(0, 60, 10, 50)
    assert (seen.lag, seen.removed, seen.kafka_lag) == (0, 0, 0)


def test_a_row_has_kafkas_figure_and_says_what_of_it_is_gone() -> None:
    row = offset_row("g", position(0, 5, 5_000, 5_000), None)
    assert (row["lag"], row["log_start_offset"], row["removed"]) == (4_995, 5_000, 4_995)
    away = offset_row("g", position(0, 5, 5_000, 5_000), None, known=False)
    assert (away["lag"], away["removed"]) == (None, None)


def test_a_sentence_says_that_the_column_is_kafkas() -> None:
    assert removed_words([position(0, 4_995, 10, 5_000)]) == ""
    assert removed_words([position(0, 5, 5_000, 5_000), position(1, 4_990, 4_995, 5_000)]) == (
        "LAG is Kafka's figure. 5,000 of these records, in 2 partitions, were removed by retention before the group "
        "read them; 5 can still be read"
    )
