"""What the log says to wrong settings, of a topic and of the node."""

import pytest

from muster.storage.config import LogSettings
from muster.storage.errors import InvalidConfig


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"retention.m": "5"}, "'retention.m' is not a setting of a log; did you mean 'retention.ms'?"),
        (
            {"zzz": "5"},
            "'zzz' is not a setting of a log; known here: cleanup.policy, compression.gzip.level, compression.lz4",
        ),
        (
            {"retention.ms": "abc"},
            "'retention.ms' is 'abc'; expected a whole number from -1 to 9223372036854775807.",
        ),
        ({"cleanup.policy": "burn"}, "'cleanup.policy' is 'burn'; expected one of delete, compact, compact,del"),
        ({"compression.type": "gz"}, "'compression.type' is 'gz'; expected one of producer, uncompressed, gzip"),
        ({"min.insync.replicas": "0"}, "'min.insync.replicas' is '0'; expected a whole number from 1 to 2147483647."),
        ({"remote.storage.enable": "true"}, "'remote.storage.enable' is 'true'; expected one of false."),
        (
            {"leader.replication.throttled.replicas": "all"},
            "'leader.replication.throttled.replicas' is 'all'; expected text that matches",
        ),
        ({"min.cleanable.dirty.ratio": "2"}, "'min.cleanable.dirty.ratio' is '2'; expected a number from 0 to 1."),
        (
            {"retention.ms": "-2", "segment.ms": "0"},
            "'segment.ms' is '0'; expected a whole number, at least 1. 'retention.ms' is '-2'; expected",
        ),
    ],
)
def test_a_wrong_topic_setting_is_named_with_what_was_expected(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        LogSettings().for_topic(given)
    assert str(raised.value).startswith(said)


def test_a_cleanup_policy_is_a_list_in_any_order() -> None:
    for given, kept in (("delete, compact", "compact,delete"), ("", ""), ("compact", "compact")):
        settings = LogSettings().for_topic({"cleanup.policy": given})
        assert (settings.cleanup_policy, settings.compacted) == (kept, "compact" in kept)
        assert LogSettings.from_properties({"log.cleanup.policy": given}).cleanup_policy == kept


def test_an_index_that_has_no_room_is_taken_and_gets_some() -> None:
    """A script for Kafka may set 4; the log would close a segment with each batch."""
    assert LogSettings().for_topic({"segment.index.bytes": "4"}).index_room == 48


def test_a_wrong_node_setting_is_named_with_the_nearest_one() -> None:
    with pytest.raises(
        InvalidConfig, match=r"'log\.segment\.byte' is not a setting .* did you mean 'log\.segment\.bytes'"
    ):
        LogSettings.from_properties({"log.segment.byte": "5000"})
