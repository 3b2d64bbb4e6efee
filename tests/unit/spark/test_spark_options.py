"""Options: Spark's names in any case, one clear error for what is wrong, a reason for what cannot apply."""

import pickle
from collections.abc import Callable

import pytest

from muster.spark.kafka_options import IGNORED_READING, IGNORED_WRITING, STREAM_ONLY, warn_of_ignored
from muster.spark.kafka_options import REFUSED_READING as REFUSED
from muster.spark.offset_commits import commit_batch, pin_batch
from muster.spark.options import KNOWN, GivenOptions, check_read_kinds, check_read_options, check_write_options
from muster.spark.read_options import OptionError, ReadOptions

SERVERS = {"bootstrap.servers": "127.0.0.1:9290"}
LEAST = SERVERS | {"subscribe": "orders"}


def batch(**more: str) -> ReadOptions:
    return check_read_options(LEAST | more, streaming=False)


def stream(**more: str) -> ReadOptions:
    return check_read_options(LEAST | more, streaming=True)


def test_names_come_in_any_case_and_as_spark_s_source_has_them() -> None:
    known = check_read_options(
        {
            "KAFKA.bootstrap.servers": "127.0.0.1:9290",
            "SUBSCRIBE": "b, a,,a",
            "maxoffsetspertrigger": "7",
            "kafka.request.timeout.ms": "1234",
            "kafka.max.partition.fetch.bytes": "99",
            "maxTriggerDelay": "2m",
        },
        streaming=True,
    )
    assert known.topics == ("a", "b")
    assert (known.max_offsets_per_trigger, known.max_trigger_delay) == (7, 120_000)
    assert known.connection.request_timeout_ms == 1234
    assert known.max_partition_fetch_bytes == 99


def test_endpoints_is_another_word_for_bootstrap_servers() -> None:
    assert check_read_options({"endpoints": "h:1", "subscribe": "t"}, streaming=False).connection.servers == ["h:1"]
    with pytest.raises(OptionError, match="given twice"):
        check_read_options(LEAST | {"endpoints": "other:1"}, streaming=False)


@pytest.mark.parametrize(
    ("given", "streaming", "told"),
    [
        ({"subscribe": "t"}, False, "bootstrap.servers is missing; set it to HOST:PORT"),
        (SERVERS, False, "exactly one of subscribe, subscribePattern and assign.*none of them is given"),
        (LEAST | {"assign": '{"t":[0]}'}, False, "subscribe and assign are given"),
        (SERVERS | {"subscribe": " , "}, False, "names no topic"),
        (SERVERS | {"subscribePattern": "("}, False, "is not a regular expression"),
        (SERVERS | {"assign": "t"}, False, "assign='t': must be JSON"),
        (SERVERS | {"assign": '{"t":[]}'}, False, "topic 't' needs partition numbers"),
        (LEAST | {"subscrib": "t"}, False, "did you mean 'subscribe'"),
        (LEAST | {"zzzzzz": "t"}, False, "known here: .*assignor"),
        (LEAST | {"failOnDataLoss": "perhaps"}, False, "failOnDataLoss='perhaps': expected true or false"),
        (LEAST | {"minPartitions": "0"}, False, "minPartitions='0': expected a whole number from 1"),
        (LEAST | {"tasks": "many"}, False, "tasks='many': must be cores, or a whole number"),
        (LEAST | {"assignor": "rnge"}, False, "assignor='rnge'.*did you mean 'range'.*split, one-to-one"),
        (LEAST | {"startingOffsets": "first"}, False, "expected earliest, latest, committed or JSON"),
        (LEAST | {"startingOffsets": "latest"}, False, "leaves a batch query nothing to read"),
        (LEAST | {"startingOffsets": "committed"}, False, "needs a group.id"),
        (LEAST | {"startingOffsets": '{"orders": {"0": -3}}'}, False, "orders-0 has -3; expected .* at least -2"),
        (LEAST | {"endingOffsets": '{"orders": {"0": -2}}'}, False, "orders-0 has -2; expected .* at least -1"),
        (LEAST | {"endingOffsets": "earliest"}, False, "expected latest, committed or JSON"),
        (LEAST | {"startingOffsetsByTimestamp": "{}"}, False, "names no partitions"),
        (LEAST | {"endingOffsets": "latest"}, True, "endingOffsets means nothing in a streaming query"),
        (LEAST | {"pushdown": "true"}, True, "pushdown means nothing in a streaming query"),
        (LEAST | {"maxOffsetsPerTrigger": "none"}, False, "maxOffsetsPerTrigger='none': expected a whole number"),
        (LEAST | {"kafka.security.protocol": "SASL_SSL"}, True, "security.protocol=.*expected PLAINTEXT or SSL.*token"),
        ({}, False, "no option at all came from Spark.*CREATE TEMPORARY VIEW.*FROM name WITH"),
        (LEAST | {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, True, "9 is more than"),
        (LEAST | {"maxTriggerDelay": "soon"}, True, "must be a time such as 15m"),
        (LEAST | {"columns": "value,valu"}, False, "expected some of key, value, topic"),
        (LEAST | {"columns": "value,value"}, False, "names a column twice"),
        (LEAST | {"bootstrap.servers": "nowhere"}, False, "'nowhere' is not HOST:PORT"),
        (LEAST | {"group.instance.id": "i"}, False, "group.id is not"),
        (LEAST | {"group.id": "g", "session.timeout.ms": "100"}, True, "must be less than session.timeout.ms"),
        (SERVERS | {"assign": "{}"}, False, "assign='{}': must be JSON that names topics"),
        (SERVERS | {"assign": '{"t":["a"]}'}, False, "topic 't' needs partition numbers from 0 on.*got \\['a'\\]"),
        (SERVERS | {"assign": '{"t":[0,0]}'}, False, "topic 't' has a partition twice"),
        (LEAST | {"assignorOptions": '{"a": 1}'}, False, "assignorOptions mean nothing with assignor=split"),
        (LEAST | {"assignor": "one-to-one", "tasks": "4"}, True, "tasks means nothing with assignor=one-to-one"),
        (LEAST | {"group.id": ""}, False, "group.id='' is not a name"),
        (LEAST | {"group.id": "g", "group.protocol": "foo"}, False, "group.protocol='foo'.*classic or consumer"),
        (LEAST | {"group.id": "g", "group.protocol": "central"}, True, "'central': .*classic or consumer"),
        (LEAST | {"group.id": "g", "session.timeout.ms": "x"}, False, "session.timeout.ms='x'"),
        (LEAST | {"partition.assignment.strategy": "nope"}, False, "partition.assignment.strategy: .*nope"),
        (LEAST | {"columns": "value", "includeHeaders": "1"}, False, "leaves headers out"),
        (LEAST | {"kafka.enable.AUTO.commit": "x"}, True, "kafka.enable.auto.commit cannot be set here"),
        (LEAST | {"endingOffsetsByTimestampStrategy": "latest"}, False, "is not an option for reading"),
        (LEAST | {"isolation.level": "dirty"}, False, "expected one of read_uncommitted, read_committed"),
    ],
)
def test_what_is_wrong_is_named_with_what_was_expected(given: dict[str, str], streaming: bool, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        check_read_options(given, streaming=streaming)


def test_where_the_kind_of_read_is_not_known_the_error_is_that_of_the_one_that_is_meant() -> None:
    assert check_read_kinds(LEAST) == {False: batch(), True: stream()}
    assert list(check_read_kinds(LEAST | {"startingOffsets": "latest"})) == [True]
    assert list(check_read_kinds(LEAST | {"endingOffsets": "latest"})) == [False]
    with pytest.raises(OptionError, match="did you mean 'startingOffsets'"):
        check_read_kinds(LEAST | {"startingoffset": "earliest"})
    with pytest.raises(OptionError, match="minPartitions='0'"):
        check_read_kinds(LEAST | {"minPartitions": "0", "maxOffsetsPerTrigger": "5"})


def test_positions_know_the_option_that_gave_them() -> None:
    assert batch(startingTimestamp="9").starting.option == "startingTimestamp"
    assert batch(startingOffsetsByTimestamp='{"orders": {"0": 5}}').starting.option == "startingOffsetsByTimestamp"
    assert batch(endingOffsets='{"orders": {"0": 5}}').ending.option == "endingOffsets"
    assert batch(endingTimestamp="9").ending.option == "endingTimestamp"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_apply_is_refused_with_the_reason(name: str) -> None:
    for word in (name, f"kafka.{name}"):
        with pytest.raises(OptionError, match=f"{word} cannot be set here: .+"):
            check_read_options(LEAST | {word: "x"}, streaming=True)


@pytest.mark.parametrize("name", sorted(IGNORED_READING))
def test_what_only_tunes_kafka_s_client_is_taken_and_named(name: str) -> None:
    for word in (name, f"kafka.{name}", f"kafka.{name.upper()}"):
        known = check_read_options(LEAST | {word: "1"}, streaming=True)
        assert [note.partition(" (")[0].lower() for note in known.ignored] == [word.lower()]
    assert name.lower() not in KNOWN, "what has an effect is not said to have none"


@pytest.mark.parametrize("name", sorted(IGNORED_WRITING))
def test_what_only_tunes_kafka_s_producer_is_taken_and_named(name: str) -> None:
    known = check_write_options(SERVERS | {"topic": "t", f"kafka.{name}": "1"}, streaming=True)
    assert [note.partition(" (")[0] for note in known.ignored] == [f"kafka.{name}"]


def test_a_batch_takes_the_limits_of_triggers_as_spark_s_source_does() -> None:
    limits = dict.fromkeys(STREAM_ONLY, "60s") | {name: "7" for name in STREAM_ONLY if name != "maxTriggerDelay"}
    assert sorted(batch(**limits).ignored) == sorted(f"{name} (a batch query has no triggers)" for name in STREAM_ONLY)
    assert stream(**limits).ignored == ()


def test_plaintext_is_what_a_connection_is_anyway() -> None:
    assert stream(**{"kafka.security.protocol": "plaintext"}).ignored == ()
    secrets = {"kafka.ssl.truststore.location": "/x", "kafka.sasl.mechanism": "PLAIN"}
    assert len(stream(**secrets).ignored) == 2
    assert stream(**secrets).connection.security is None


def test_tls_and_a_token_reach_the_connection_and_no_repr() -> None:
    given = {"kafka.security.protocol": "ssl", "kafka.ssl.truststore.location": "/ca.pem", "token": "s3cr3t"}
    for options in (stream(**given), check_write_options(SERVERS | {"topic": "t"} | given, streaming=False)):
        assert "s3cr3t" not in repr(options)
    known = stream(**given).connection.security
    assert known is not None
    assert (known.tls, known.ca_file, known.token) == (True, "/ca.pem", "s3cr3t")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kafka.sasl.jaas.config": "password='s3cr3t'"}, "sasl.jaas.config cannot be set here: .*token.file"),
        ({"kafka.ssl.truststore.password": "s3cr3t"}, "ssl.truststore.password cannot be set here: .*PEM"),
        ({"token": "s3cr3t", "kafka.token": "s3cr3t2"}, "token is given twice: ... and ...; keep one"),
        ({"token": "s3 cr3t"}, r"token=\.\.\.: expected a token of"),
        ({"token": "s3cr3t", "token.file": "/t"}, "token and token.file are both set"),
        ({"kafka.ssl.endpoint.identification.algorithm": ""}, "gRPC always checks the name.*ssl.target.name"),
    ],
)
def test_what_cannot_secure_a_connection_is_refused_and_no_secret_is_told(given: dict[str, str], told: str) -> None:
    secured = {"kafka.security.protocol": "SSL"} | given
    with pytest.raises(OptionError, match=told) as reading:
        stream(**secured)
    with pytest.raises(OptionError, match=told) as writing:
        check_write_options(SERVERS | {"topic": "t"} | secured, streaming=False)
    assert "s3" not in f"{reading.value} {writing.value}"


def test_what_has_no_effect_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    known = stream(**{"kafka.fetch.min.bytes": "1", "kafka.check.crcs": "false"})
    for _ in range(3):
        warn_of_ignored(known.ignored)
        warn_of_ignored(stream().ignored)
    (said,) = caplog.messages
    assert "kafka.fetch.min.bytes (a task" in said
    assert "kafka.check.crcs (checksums" in said


def test_a_table_of_spark_s_catalog_is_refused_when_it_is_made() -> None:
    """What Spark hands over for CREATE TABLE: afterwards it would hand over nothing at all."""
    made = {"provider": "muster", "owner": "root", **LEAST, "option.subscribe": "orders"}
    with pytest.raises(OptionError, match="neither read nor written; CREATE TEMPORARY VIEW"):
        check_read_kinds(made)


def test_where_reading_begins_by_default() -> None:
    assert batch().starting.kind == "earliest"
    assert stream().starting.kind == "latest"
    assert batch(**{"group.id": "g"}).starting.kind == "committed"
    assert stream(**{"kafka.group.id": "g"}).starting.kind == "committed"
    assert batch().ending.kind == "latest"


def test_a_time_for_all_goes_before_times_and_those_before_offsets() -> None:
    by_time = {"startingOffsetsByTimestamp": '{"orders": {"0": 5}}', "startingOffsets": "earliest"}
    assert batch(**by_time).starting.times == {"orders": {0: 5}}
    assert batch(startingTimestamp="9", **by_time).starting.time_ms == 9


def test_only_a_stream_that_subscribes_joins_its_group() -> None:
    assert stream(**{"group.id": "g"}).joins_group
    assert not batch(**{"group.id": "g"}).joins_group
    assigned = SERVERS | {"assign": '{"t": [0]}', "group.id": "g"}
    assert not check_read_options(assigned, streaming=True).joins_group


def test_columns_may_be_chosen() -> None:
    assert batch().column_names == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert batch(includeHeaders="true").column_names[-1] == "headers"
    assert all(batch(includeHeaders=word).column_names[-1] == "headers" for word in ("yes", "1", "TRUE"))
    assert batch(columns="offset, value").column_names == ("offset", "value")


def test_options_travel_to_the_tasks() -> None:
    known = stream(**{"group.id": "g", "startingOffsets": '{"orders": {"0": 5}}'})
    assert pickle.loads(pickle.dumps(known)) == known


def test_every_option_is_documented() -> None:
    assert all(field.description for field in GivenOptions.model_fields.values())
    assert "kafkaconsumer.polltimeoutms" in KNOWN


@pytest.mark.parametrize("step", [pin_batch, commit_batch])
def test_a_batch_job_that_is_to_commit_names_its_group_before_it_begins(
    step: Callable[[dict[str, str]], object],
) -> None:
    with pytest.raises(OptionError, match=f"{step.__name__} needs a group.id, the group whose progress"):
        step({"bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"})
