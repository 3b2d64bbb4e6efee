"""Whose quota counts, what is used of it over time, and what may be set: as Kafka has it."""

import doctest

import pytest

from muster.coordinator.security import quota_rules
from muster.coordinator.security import quota_usage as whole
from muster.coordinator.security.quota_rules import (
    ANY,
    DEFAULT,
    EXACT,
    InvalidQuota,
    QuotaTable,
    check_entity,
    check_value,
)
from muster.coordinator.security.quota_usage import NodeQuotas, TokenBucket, WindowedRate

KEY = "producer_byte_rate"
ORDER = [
    [("user", "u"), ("client-id", "c")],
    [("user", "u"), ("client-id", None)],
    [("user", "u")],
    [("user", None), ("client-id", "c")],
    [("user", None), ("client-id", None)],
    [("user", None)],
    [("client-id", "c")],
    [("client-id", None)],
]
SHARED_BY = [("u", "c"), ("u", "c"), ("u", None), ("u", "c"), ("u", "c"), ("u", None), (None, "c"), (None, "c")]


def test_the_most_specific_counts_in_kafka_s_order() -> None:
    quotas = {check_entity(parts): {KEY: float(place + 1)} for place, parts in enumerate(ORDER)}
    for place, parts in enumerate(ORDER):
        found = QuotaTable(KEY, quotas).of("u", "c")
        assert found == (place + 1, SHARED_BY[place])
        del quotas[check_entity(parts)]
    assert QuotaTable(KEY, quotas).of("u", "c") is None
    assert QuotaTable(KEY, {check_entity([("user", "u")]): {"consumer_byte_rate": 1.0}}).of("u", "c") is None


def test_an_address_has_its_own_or_the_default() -> None:
    limits = QuotaTable("rate", {(("ip", "10.0.0.1"),): {"rate": 3.0}, (("ip", None),): {"rate": 9.0}})
    assert [limits.of_address(ip) for ip in ("10.0.0.1", "10.0.0.2")] == [3.0, 9.0]


def test_what_is_kept_of_names_that_clients_choose_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "MAX_METERS", 10)
    quotas = NodeQuotas()
    quotas.replace({(("client-id", None),): {KEY: 100.0}})
    for number in range(100):
        quotas.charge(quotas.producing, "u", f"c-{number}", 1, float(number))
        quotas.record_throttling(f"u-{number}", KEY, 1.0)
    assert len(quotas._meters) <= 20
    quotas.charge(quotas.producing, "u", "late", 1, 10_000.0)
    assert len(quotas._meters) <= 11, "who is silent for an hour is forgotten"
    for number in range(200):
        quotas.record_throttling(f"v-{number}", KEY, 1.0)
    assert len(quotas.throttled_s) == whole.MAX_NAMED_PRINCIPALS + 1
    assert sum(quotas.throttled_s.values()) == 300


def test_a_burst_is_spread_over_all_windows() -> None:
    """Kafka: a first burst counts over ten seconds, so that ten times the quota is what one second may have."""
    rate = WindowedRate(11, 1.0)
    assert rate.used(1_000, 100, 0.0) == 0.0
    assert rate.used(500, 100, 0.0) == pytest.approx((150 - 100) / 100 * 10)
    assert rate.used(0, 100, 5.0) == pytest.approx(5.0)
    assert rate.used(0, 100, 15.0) == 0.0


@pytest.mark.parametrize("over", [1.5, 3.0, 10.0])
def test_who_waits_as_told_stays_within_the_quota(over: float) -> None:
    rate, now_s, sent = WindowedRate(11, 1.0), 0.0, 0.0
    while now_s < 300:
        sent += 10
        now_s += max(10 / (100 * over), rate.used(10, 100, now_s))
    assert sent / now_s == pytest.approx(100, rel=0.06)


def test_a_bucket_has_the_burst_of_all_windows_and_then_as_many_as_the_quota() -> None:
    bucket = TokenBucket(11, 1.0)
    assert bucket.used(55, 5, 0.0) == 0.0
    assert bucket.used(10, 5, 0.0) == pytest.approx(2.0)
    assert bucket.owed_s(5, 1.0) == pytest.approx(1.0)
    assert bucket.owed_s(5, 2.0) == 0.0
    assert bucket.used(0, 5, 100.0) == 0.0
    assert bucket.used(56, 5, 100.0) == pytest.approx(0.2)
    assert bucket.used(-56, 5, 100.0) == 0.0


def test_time_is_paid_for_a_window_at_once_at_most() -> None:
    quotas = NodeQuotas()
    quotas.replace({(("user", None),): {"request_percentage": 0.1}})
    assert quotas.charge(quotas.requests, "u", "", 5_000, 0.0) == 1.0
    assert quotas.charge(quotas.producing, "u", "", 5_000, 0.0) == 0.0


def test_connections_of_an_address_come_at_a_rate_and_those_refused_do_not_count() -> None:
    quotas = NodeQuotas()
    quotas.replace({(("ip", None),): {"connection_creation_rate": 2.0}})
    let_in = sum(quotas.charge_connection("10.0.0.1", second / 10) == 0.0 for second in range(1_000))
    assert 190 <= let_in <= 222
    assert quotas.charge_connection("10.0.0.2", 100.0) == 0.0


def test_nothing_set_is_told_by_one_look() -> None:
    quotas = NodeQuotas()
    assert not quotas.active
    quotas.replace({(("user", "u"),): {"group_count": 0.0}})
    assert quotas.active
    assert not quotas.rates
    assert (quotas.count_of("group_count", "u"), quotas.count_of("group_count", "v")) == (0, None)
    assert quotas.count_of("member_count", "u") is None


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([], "the entity is empty"),
        ([("host", "h")], "entity type 'host' is not known"),
        ([("user", "a"), ("user", "b")], "two of type user"),
        ([("user", "")], "has 0 characters"),
        ([("ip", "nowhere")], "'nowhere' is no ip address"),
        ([("ip", None), ("user", "a")], "ip cannot be combined with other types"),
    ],
)
def test_entities_that_are_none(parts: list[tuple[str, str | None]], told: str) -> None:
    with pytest.raises(InvalidQuota, match=told):
        check_entity(parts)


@pytest.mark.parametrize(
    ("entity", "name", "value", "told"),
    [
        ((("user", "u"),), "connection_creation_rate", 1, "is not a quota of user u; expected one of"),
        ((("ip", None),), "producer_byte_rate", 1, "is not a quota of ip <default>; expected one of connection"),
        ((("client-id", "c"),), "group_count", 1, "is not a quota of client-id c"),
        ((("user", "u"),), "producer_byte_rate", 1.5, "is 1.5; expected a whole number, at least 1"),
        ((("user", "u"),), "producer_byte_rate", 0, "is 0; expected a whole number, at least 1"),
        ((("user", "u"),), "group_count", -1, "is -1; expected a whole number, at least 0"),
        ((("user", "u"),), "request_percentage", 0, "is 0; expected a number above 0"),
        ((("user", "u"),), "request_percentage", float("nan"), "is nan"),
        ((("user", "u"),), "producer_byte_rate", float("inf"), "is inf"),
    ],
)
def test_figures_that_are_none(entity: quota_rules.QuotaEntity, name: str, value: float, told: str) -> None:
    with pytest.raises(InvalidQuota, match=told):
        check_value(entity, name, value)


SET = {
    check_entity(parts): {KEY: 1.0}
    for parts in ([("user", "a")], [("user", "b"), ("client-id", "c")], [("user", None)], [("client-id", "c")])
}


@pytest.mark.parametrize(
    ("wanted", "strict", "found"),
    [
        ([], False, 4),
        ([], True, 0),
        ([("user", ANY, None)], False, 3),
        ([("user", ANY, None)], True, 2),
        ([("user", EXACT, "b")], False, 1),
        ([("user", EXACT, "b")], True, 0),
        ([("user", DEFAULT, None)], True, 1),
        ([("user", ANY, None), ("client-id", EXACT, "c")], True, 1),
        ([("ip", ANY, None)], False, 0),
    ],
)
def test_a_filter_finds_what_has_its_types(wanted: list[tuple[str, int, str | None]], strict: bool, found: int) -> None:
    assert len(quota_rules.filter_quotas(SET, wanted, strict=strict)) == found


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ([("host", ANY, None)], "entity type 'host'"),
        ([("user", ANY, None), ("user", ANY, None)], "two of type user"),
        ([("user", 7, None)], "match type 7"),
        ([("user", EXACT, None)], "with a name"),
        ([("user", ANY, "a")], "without a name"),
        ([("ip", ANY, None), ("user", ANY, None)], "ip cannot be combined with other"),
    ],
)
def test_filters_that_are_none(wanted: list[tuple[str, int, str | None]], told: str) -> None:
    with pytest.raises(InvalidQuota, match=told):
        quota_rules.filter_quotas(SET, wanted, strict=False)


def test_examples() -> None:
    assert doctest.testmod(quota_rules).failed == 0


def test_of_a_long_client_id_no_more_is_kept_than_can_have_a_quota() -> None:
    """Ten thousand answers about ids of 32 KB each were kept, and what each had used."""
    quotas = NodeQuotas()
    quotas.replace({(("client-id", None),): {"producer_byte_rate": 1.0}})
    for end in "ab":
        quotas.charge(quotas.producing, "u", "c" * 30_000 + end, 1.0, 0.0)
    assert {client for _, client in quotas.producing._known} == {"c" * 1_024}
    assert len(quotas._meters) == 1
