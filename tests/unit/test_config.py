"""Settings: every one named, bounded and explained; every mistake answered with where, what, and what instead."""

import re
from pathlib import Path
from typing import get_args

import pytest

from muster.coordinator.config import (
    Settings,
    SettingsError,
    expected,
    known_settings,
    load_settings,
    parse_address,
    render_properties,
)
from muster.coordinator.core.model.plan import canonical_name, loadable_name
from muster.coordinator.core.model.types import Limits
from muster.coordinator.runtime.limits import limits_of
from tests.support.plugins import Deals

OPEN = {"allow.insecure.listeners": "true"}


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "node.properties"
    file.write_text(text)
    return file


def complaint(file: Path | None = None, **overrides: str) -> str:
    dotted = {key.replace("_", "."): value for key, value in overrides.items()}
    with pytest.raises(SettingsError) as caught:
        load_settings(file, dotted)
    return str(caught.value)


# -- defaults -----------------------------------------------------------------------------------------------------


def test_the_defaults_are_kafkas() -> None:
    settings = load_settings()
    assert (settings.listen_host, settings.listen_port) == ("127.0.0.1", 9290)
    assert settings.group_initial_rebalance_delay_ms == 3_000
    assert settings.offsets_topic_num_partitions == 50
    assert settings.offsets_topic_segment_bytes == 100 * 1024 * 1024


def test_the_rules_get_the_same_defaults_that_they_have_by_themselves() -> None:
    assert limits_of(load_settings()) == Limits()


def test_every_setting_of_the_rules_comes_from_a_setting() -> None:
    overrides = {
        "group.min.session.timeout.ms": "1",
        "group.max.session.timeout.ms": "2",
        "group.initial.rebalance.delay.ms": "3",
        "group.max.size": "4",
        "offset.metadata.max.bytes": "5",
        "offsets.retention.minutes": "6",
        "offsets.retention.check.interval.ms": "7",
        "group.ledger.max.entries": "8",
        "group.ledger.max.snapshot.bytes": "9",
    }
    assert limits_of(load_settings(None, overrides)) == Limits(
        min_session_timeout_ms=1,
        max_session_timeout_ms=2,
        initial_rebalance_delay_ms=3,
        max_group_size=4,
        max_offset_metadata=5,
        offsets_retention_ms=6 * 60_000,
        offsets_retention_check_ms=7,
        ledger_max_entries=8,
        ledger_max_snapshot_bytes=9,
    )


@pytest.mark.parametrize("name", sorted(known_settings()))
def test_every_setting_has_a_dotted_name_a_default_and_one_sentence(name: str) -> None:
    field = known_settings()[name]
    assert field.alias == name == name.lower()
    assert "_" not in name
    assert not field.is_required()
    assert field.description is not None
    assert field.description[0].isupper()
    assert field.description.endswith(".")
    assert field.description.count(". ") == 0
    assert expected(field)


@pytest.mark.parametrize("name", sorted(known_settings()))
def test_every_number_has_a_bound_below(name: str) -> None:
    field = known_settings()[name]
    if field.annotation in (int, float):
        assert " from " in expected(field) or "at least" in expected(field)


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_is_read_by_something(name: str, code: str) -> None:
    if len(get_args(Settings.model_fields[name].annotation)) == 1:
        return  # it can have one value only
    # A topic's own settings default to the node's by name, in muster.storage.config.
    assert re.search(rf"\.{name}\b", code) or f': "{name}",' in code, f"nothing reads {name}"


@pytest.fixture(scope="module")
def code() -> str:
    root = Path(__file__).parents[2]
    return "\n".join(file.read_text() for name in ("coordinator", "storage") for file in root.glob(f"{name}/**/*.py"))


# -- the properties file ------------------------------------------------------------------------------------------


def test_every_default_is_a_value_that_its_setting_allows() -> None:
    class Checked(Settings, validate_default=True):
        """As if each default had been written into the file."""

    assert Checked.model_validate({}).model_dump() == Settings().model_dump()


def test_the_rendered_file_is_the_defaults_and_reads_back(tmp_path: Path) -> None:
    text = render_properties()
    assert load_settings(write(tmp_path, text)) == load_settings()
    keys = [line.split("=")[0] for line in text.splitlines() if line and not line.startswith("#")]
    assert keys == list(known_settings())
    assert len(keys) == len(Settings.model_fields) - 1, "but for listener.name, which has its names from others"
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_file_is_read_with_comments_either_separator_and_spaces(tmp_path: Path) -> None:
    text = "\ufeff# a comment\n! another\n\n  node.id = 7\r\ngroup.max.size:5\nlogging.level=debug   \n"
    settings = load_settings(write(tmp_path, text))
    assert (settings.node_id, settings.group_max_size, settings.logging_level) == (7, 5, "debug")


def test_a_value_may_hold_separators(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, "listeners=[::1]:9300\nlog.dirs=/data/a=b:c#d"))
    assert (settings.listen_host, settings.listen_port) == ("::1", 9300)
    assert settings.data_dir == Path("/data/a=b:c#d")


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "node.id=7\ngroup.max.size=5\n")
    settings = load_settings(file, {"node.id": "8"})
    assert (settings.node_id, settings.group_max_size) == (8, 5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("node.id", "node.properties:1: 'node.id' is not a setting; expected key=value"),
        ("\n=5", "node.properties:2: the line is not a setting; expected key=value"),
        ("node.id=1\n\nnode.id=2", "node.properties:3: node.id was set before, at "),
        ("log.dirs=C:\\data", "node.properties:1: 'log.dirs' has a backslash; write the value plainly"),
        ("node.id=\\\n5", "has a backslash"),
    ],
)
def test_a_line_that_surprises_is_refused_with_its_number(tmp_path: Path, text: str, sentence: str) -> None:
    assert sentence in complaint(write(tmp_path, text))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert f"cannot read the settings in {tmp_path / 'absent'}" in complaint(tmp_path / "absent")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "expected a readable UTF-8 file" in complaint(binary)


# -- bad input ----------------------------------------------------------------------------------------------------


def test_an_unknown_setting_is_named_with_its_place_and_the_nearest_known(tmp_path: Path) -> None:
    file = write(tmp_path, "node.id=1\ngroup.max.sise=5\n")
    assert complaint(file) == f"{file}:2: group.max.sise is not a setting of this node; did you mean group.max.size?"
    assert complaint(log_segment_byte="5") == (
        "--set: log.segment.byte is not a setting of this node; did you mean log.segment.bytes?"
    )


def test_an_unknown_setting_without_a_neighbour_points_to_the_list() -> None:
    assert complaint(qqqq="1") == ("--set: qqqq is not a setting of this node; `muster settings` lists all there are")


def test_the_attribute_name_is_not_a_setting() -> None:
    with pytest.raises(SettingsError, match=r"--set: node_id is not a setting of this node; did you mean node\.id\?"):
        load_settings(None, {"node_id": "3"})


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("group.max.size", "0", "group.max.size is '0', expected a whole number from 1 to 2147483647"),
        ("group.max.size", "many", "group.max.size is 'many', expected a whole number from 1 to 2147483647"),
        ("node.id", "", "node.id is '', expected a whole number from 0 to 2147483647"),
        ("logging.level", "loud", "logging.level is 'loud', expected one of debug, info, warning, error"),
        ("log.cleaner.min.cleanable.ratio", "2", "is '2', expected a number from 0 to 1"),
        ("log.dirs", "/a,/b", "log.dirs is '/a,/b', expected a directory (this node keeps everything in one"),
        ("log.dirs", "", "log.dirs is '', expected a directory (an empty path would mean the working directory"),
        ("listeners", "nowhere", "listeners is 'nowhere', expected HOST:PORT"),
        ("listeners", "h:70000", "a host, a colon and a port from 0 to 65535"),
        ("listeners", "http://h:1", "'http' is not supported here; expected one of PLAINTEXT, SSL before ://"),
        ("listeners", "SASL_SSL://h:1", "'SASL_SSL' is not supported here; expected one of PLAINTEXT, SSL before ://"),
        ("listeners", "PLAINTEXT://h/1:1", "without a scheme"),
        ("listeners", "::1:9290", "an IPv6 host in brackets"),
        ("listeners", "", "listeners is empty; expected HOST:PORT"),
        ("advertised.listeners", "h", "advertised.listeners is 'h', expected HOST:PORT or nothing"),
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(key: str, value: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, {key: value})
    assert sentence in str(caught.value)


def test_every_fault_is_told_at_once() -> None:
    told = complaint(node_id="-1", logging_level="loud").splitlines()
    assert [line.split()[1] for line in told] == ["node.id", "logging.level"]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            {"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"},
            "group.min.session.timeout.ms is 9, but group.max.session.timeout.ms is only 8; lower the first",
        ),
        ({"listeners": "0.0.0.0:9290"}, "clients would be told to connect to 0.0.0.0"),
        ({"advertised.listeners": "[::]:1"}, "clients would be told to connect to ::"),
        (
            {"grpc.max.message.bytes": "2000000", "fetch.max.bytes": "1000000", "message.max.bytes": "1999999"},
            "message.max.bytes is 1999999, but grpc.max.message.bytes, which is 2000000, has room for 1934464",
        ),
        ({"fetch.max.bytes": "100000000"}, "fetch.max.bytes is 100000000, but grpc.max.message.bytes"),
        ({"kafka.listeners": "0.0.0.0:9092"}, "Kafka clients would be told to connect to 0.0.0.0"),
        ({"kafka.advertised.listeners": "h:1"}, "kafka.advertised.listeners is h:1, but kafka.listeners is empty"),
        (
            {"kafka.listeners": "h:1", "message.max.bytes": "2000000", "socket.request.max.bytes": "1048576"},
            "message.max.bytes is 2000000, but socket.request.max.bytes, which is 1048576, has no room for it",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_both_named(overrides: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, overrides)
    assert sentence in str(caught.value)


# -- addresses ----------------------------------------------------------------------------------------------------


def test_clients_are_told_the_bound_port_or_what_was_set() -> None:
    assert load_settings(None, {"listeners": "127.0.0.1:0"}).advertised_address(4711) == ("127.0.0.1", 4711)
    behind = load_settings(None, OPEN | {"listeners": "0.0.0.0:9290", "advertised.listeners": "muster.example:443"})
    assert behind.advertised_address(9290) == ("muster.example", 443)
    named = load_settings(None, OPEN | {"listeners": "0.0.0.0:0", "advertised.listeners": "muster.example:0"})
    assert named.advertised_address(4711) == ("muster.example", 4711)


def test_kafka_is_not_served_unless_it_is_said_where() -> None:
    assert load_settings().kafka_address is None
    beside = load_settings(None, {"kafka.listeners": "127.0.0.1:0"})
    assert beside.kafka_address == ("127.0.0.1", 0)
    assert beside.kafka_advertised_address(4711) == ("127.0.0.1", 4711)
    behind = load_settings(
        None, OPEN | {"kafka.listeners": "0.0.0.0:9092", "kafka.advertised.listeners": "muster.example:443"}
    )
    assert behind.kafka_advertised_address(9092) == ("muster.example", 443)
    named = load_settings(
        None, OPEN | {"kafka.listeners": "0.0.0.0:0", "kafka.advertised.listeners": "muster.example:0"}
    )
    assert named.kafka_advertised_address(4711) == ("muster.example", 4711)


@pytest.mark.parametrize("text", ["", ":", "h", "h:", ":1", "h:x", "h:-1", "h:65536", "h:１", "[]:1", "a:b:1", "//h:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:9290|brackets"):
        parse_address(text)


DEALS, RAISES = "tests.support.plugins:Deals", "tests.support.plugins:Raises"


def test_assignors_are_offered_by_their_names() -> None:
    kept = {"group.consumer.assignors": f"RangeAssignor, {DEALS}", "group.remote.assignors": f"{RAISES},{DEALS}"}
    limits = limits_of(load_settings(None, kept))
    assert limits.consumer_assignors == ("range", "deals")
    assert limits.remote_assignors == ("raises", "deals")
    assert limits.plugins == (("deals", DEALS), ("raises", RAISES))
    words = [
        "deals",
        DEALS,
        "raises",
        "uniform",
        "UniformAssignor",
        "muster.assignors.builtin.lag:LagAssignor",
        "os:system",
        "nobody",
    ]
    names = [
        "deals",
        "deals",
        "raises",
        "uniform",
        "uniform",
        "muster.assignors.builtin.lag:LagAssignor",
        "os:system",
        "nobody",
    ]
    assert [canonical_name(word, limits) for word in words] == names
    assert [loadable_name(name, limits) for name in ("deals", "raises", "range")] == [DEALS, RAISES, "range"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"group.consumer.assignors": "tests.unit.test_config:Ours"}, "calls itself 'range', which is built in"),
        ({"group.remote.assignors": f"{DEALS},tests.unit.test_config:Other"}, "have the same name 'deals'; rename one"),
        (
            {"group.consumer.assignors": DEALS, "group.remote.assignors": "tests.unit.test_config:Other"},
            "have the same name 'deals'; rename one",
        ),
        ({"group.consumer.assignors": ","}, "name an assignor or more"),
    ],
)
def test_a_name_is_one_assignor_s(given: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        load_settings(None, given)


class Other(Deals):
    """Another plugin of a name that is taken."""


class Ours(Deals):
    name = "range"
