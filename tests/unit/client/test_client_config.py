"""The client's properties: both spellings, Kafka's defaults and rules, and refusals that help."""

import pytest

from muster.client.config import ClientConfig, ConsumerConfig, GroupConfig, ProducerConfig, WorkerConfig, load
from muster.client.errors import ConfigError


def consumer(properties: dict[str, object] | None = None, **keywords: object) -> ConsumerConfig:
    return load(ConsumerConfig, properties, keywords)


def test_dotted_names_and_keywords_mean_the_same() -> None:
    assert consumer({"session.timeout.ms": 9_000}) == consumer(session_timeout_ms=9_000)


def test_text_is_read_as_the_command_line_gives_it() -> None:
    config = consumer({"max.poll.records": "7", "enable.auto.offset.store": "false", "group.id": "g"})
    assert (config.max_poll_records, config.enable_auto_offset_store) == (7, False)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("session_timeout_ms", 45_000),
        ("heartbeat_interval_ms", 3_000),
        ("max_poll_interval_ms", 300_000),
        ("max_poll_records", 500),
        ("auto_offset_reset", "latest"),
        ("auto_commit_interval_ms", 5_000),
        ("fetch_min_bytes", 1),
        ("fetch_max_wait_ms", 500),
        ("max_partition_fetch_bytes", 1 << 20),
        ("request_timeout_ms", 30_000),
        ("default_api_timeout_ms", 60_000),
        ("retry_backoff_ms", 100),
        ("retry_backoff_max_ms", 1_000),
        ("metadata_max_age_ms", 300_000),
        ("partition_assignment_strategy", "range,cooperative-sticky"),
    ],
)
def test_defaults_are_those_of_kafkas_java_client(name: str, default: object) -> None:
    assert getattr(consumer(), name) == default


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"'sesion\.timeout\.ms' is not a property .* did you mean 'session\.timeout\.ms'"
    ):
        consumer({"sesion.timeout.ms": 1})
    with pytest.raises(ConfigError, match=r"did you mean 'group\.id'"):
        consumer(groupid="g")


def test_a_name_like_no_other_lists_what_is_known() -> None:
    with pytest.raises(ConfigError, match=r"known here: .*bootstrap\.servers"):
        load(ClientConfig, {"zzz": 1}, {})


def test_a_property_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"group\.id is given twice"):
        consumer({"group.id": "a"}, group_id="b")


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        (
            {"auto.offset.reset": "sometimes"},
            r"auto\.offset\.reset='sometimes'.*expected one of latest, earliest, none",
        ),
        ({"session.timeout.ms": "soon"}, r"session\.timeout\.ms='soon': expected a whole number from 1 to"),
        ({"fetch.min.bytes": 0}, r"fetch\.min\.bytes=0: expected a whole number from 1 to"),
        ({"bootstrap.servers": "nowhere"}, "'nowhere' is not HOST:PORT"),
        ({"bootstrap.servers": "host:99999"}, "port from 1 to 65535"),
        ({"group.id": ""}, "must not be empty"),
        ({"group.id": "g", "group.instance.id": ""}, "must not be empty"),
        ({"group.instance.id": "i"}, r"a static member needs a group"),
        ({"enable.auto.commit": True}, r"needs a group\.id"),
        ({"heartbeat.interval.ms": 5_000, "session.timeout.ms": 5_000}, r"must be less than session\.timeout\.ms"),
        ({"group.protocol": "raft"}, r"group\.protocol='raft': expected one of classic, consumer"),
        (
            {"group.protocol": "consumer", "partition.assignment.strategy": "range"},
            r"partition\.assignment\.strategy cannot be set with group\.protocol=consumer: the coordinator assigns",
        ),
        (
            {"group.protocol": "consumer", "session.timeout.ms": 30_000},
            r"session\.timeout\.ms cannot be set with group\.protocol=consumer: .* group\.consumer settings",
        ),
        (
            {"group.protocol": "consumer", "heartbeat.interval.ms": 1_000},
            r"heartbeat\.interval\.ms cannot be set with group\.protocol=consumer",
        ),
        ({"group.protocol": "consumer", "group.remote.assignor": ""}, r"group\.remote\.assignor=''"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(properties: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        consumer(properties)


def test_the_coordinator_may_be_asked_for_an_assignor() -> None:
    config = consumer({"group.id": "g", "group.protocol": "consumer", "group.remote.assignor": "uniform"})
    assert (config.group_protocol, config.group_remote_assignor) == ("consumer", "uniform")


def test_options_of_assignors_are_an_object_or_its_json() -> None:
    assert consumer(partition_assignment_options='{"move.budget": 3}').partition_assignment_options == {
        "move.budget": 3
    }
    with pytest.raises(ConfigError, match=r"partition\.assignment\.options='3 moves'.*as in \{"):
        consumer(partition_assignment_options="3 moves")


def test_without_a_group_nothing_is_committed_automatically() -> None:
    assert not consumer().auto_commits
    assert consumer(group_id="g").auto_commits
    assert not consumer(group_id="g", enable_auto_commit=False).auto_commits


def test_other_clients_words_are_understood() -> None:
    assert consumer(auto_offset_reset="smallest").auto_offset_reset == "earliest"
    assert load(ProducerConfig, None, {"acks": -1}).acks == "all"
    assert load(ProducerConfig, None, {"acks": 1}).acks == "1"
    assert consumer(partition_assignment_strategy=["range", "lag"]).partition_assignment_strategy == "range,lag"
    assert consumer(bootstrap_servers=["a:1", "b:2"]).servers == ["a:1", "b:2"]


@pytest.mark.parametrize("model", [ClientConfig, ConsumerConfig, GroupConfig, ProducerConfig, WorkerConfig])
def test_every_property_has_a_sentence_and_a_name_of_its_own(model: type[ClientConfig]) -> None:
    for name, field in model.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name
