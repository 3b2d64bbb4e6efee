"""The node's own metrics, as `prometheus_client` writes them."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from muster.coordinator.observability.metrics.instruments import (
    ClusterFigures,
    Instruments,
    KafkaBackendFigures,
    Timing,
    TransactionFigures,
)
from muster.coordinator.observability.metrics.node_metrics import (
    NodeFigures,
    encode_family,
    negotiate_format,
    node_families,
)
from muster.coordinator.observability.metrics.series import RebalanceTotals
from muster.coordinator.observability.metrics.table import FAMILIES, OF_CLUSTER, OF_ENGINE, OF_TRANSACTIONS, Level


def text(figures: NodeFigures, instruments: Instruments, accept: str = "") -> str:
    _, encode, _ = negotiate_format(accept)
    return b"".join(
        encode_family([each], encode) for each in node_families(figures, instruments, RebalanceTotals(), str)
    ).decode()


def busy() -> Instruments:
    instruments = Instruments()
    meter = instruments.meter("grpc", "Heartbeat")
    meter.answered(0.001, 0)
    meter.answered(0.001, 27)
    meter.refused(0.2, "UNAVAILABLE")
    instruments.meter("grpc", "Session").ended("CANCELLED")
    instruments.meter("grpc", "Never")
    instruments.assignor_errors["lag"] += 1
    instruments.conversions["Produce"] += 3
    return instruments


ALONE = NodeFigures(
    1, "h:1", "0.1.0", 3, {"join": 2}, {"kafka": 5}, ["active", "failed"], 0.002, 10, 20, {"disk-low": 1}
)
CLUSTER = ClusterFigures(
    under_replicated=2,
    under_min_isr=1,
    offline=3,
    controllers=1,
    elections=40,
    elections_s=2.5,
    unclean=4,
    isr_shrinks=5,
    isr_expands=6,
    max_lag=700,
    undone=13,
    unproven=14,
)
ENGINE = KafkaBackendFigures(
    unacked={3: 70},
    owned=2,
    fenced=1,
    fenced_records=4,
    errors={("Produce", "NOT_LEADER_OR_FOLLOWER"): 5},
    proxied={"up": 6},
    foreign_members={"orders": 8},
    topics_unseen=9,
    pending_positions=3,
    oldest_pending_ms=2_500,
)
SECONDS = Timing((1.0,))
SECONDS.took(0.5)
TRANSACTIONS = TransactionFigures(
    states={"Ongoing": 2, "Empty": 0},
    ends={("aborted", "timed out"): 3},
    seconds=SECONDS,
    stable_lags={("orders", 1): 70},
    late_partitions=4,
    unknown_destinations=0,
    verification_failures=5,
    aborts_lost=6,
)
FIGURES = replace(ALONE, cluster=CLUSTER, engine=ENGINE, transactions=TRANSACTIONS)


def test_requests_by_code() -> None:
    found = {
        (sample.labels["api"], sample.labels["code"]): sample.value
        for family in text_string_to_metric_families(text(FIGURES, busy()))
        for sample in family.samples
        if sample.name == "muster_requests_total"
    }
    assert found == {
        ("Heartbeat", "0"): 1,
        ("Heartbeat", "27"): 1,
        ("Heartbeat", "UNAVAILABLE"): 1,
        ("Session", "CANCELLED"): 1,
    }


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text;version=1.0.0"])
def test_all_of_the_table_that_is_the_node_s_is_written_once(accept: str) -> None:
    heads = [line.split()[2] for line in text(FIGURES, busy(), accept).splitlines() if line.startswith("# TYPE")]
    ours = [head for head in heads if head.startswith(("muster", "kafka"))]
    counters = {family.name for family in FAMILIES.values() if family.name.endswith("_total")} if accept else set()
    expected = {
        family.name.removesuffix("_total") if family.name in counters else family.name
        for family in FAMILIES.values()
        if family.level is Level.NODE and family.name != "muster_request_duration_seconds"
    }
    assert sorted(ours) == sorted(expected)
    assert any(head.startswith("python") for head in heads)
    assert "# EOF" not in text(FIGURES, busy(), accept)


def test_of_a_cluster_there_are_figures_by_kafka_s_names_and_of_a_node_on_its_own_there_are_none() -> None:
    found = {
        sample.name.removeprefix("kafka_"): sample.value
        for family in text_string_to_metric_families(text(FIGURES, busy()))
        for sample in family.samples
        if sample.name in {family.name for family in OF_CLUSTER}
    }
    assert found == {
        "server_replicamanager_underreplicatedpartitions": 2,
        "server_replicamanager_underminisrpartitioncount": 1,
        "server_replicamanager_isrshrinks_total": 5,
        "server_replicamanager_isrexpands_total": 6,
        "server_replicafetchermanager_maxlag": 700,
        "controller_kafkacontroller_activecontrollercount": 1,
        "controller_kafkacontroller_offlinepartitionscount": 3,
        "controller_controllerstats_leaderelections_total": 40,
        "controller_controllerstats_leaderelection_seconds_total": 2.5,
        "controller_controllerstats_uncleanleaderelections_total": 4,
        "muster_unclean_undone_records_total": 13,
        "muster_unproven_nodes_total": 14,
    }
    alone = text(ALONE, busy())
    assert not [family.name for family in OF_CLUSTER if family.name in alone]


def test_of_a_kafka_below_there_are_figures_and_of_other_nodes_there_are_none() -> None:
    found = {
        (sample.name.removeprefix("muster_engine_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text(FIGURES, busy()))
        for sample in family.samples
        if sample.name in {family.name for family in OF_ENGINE}
    }
    assert found == {
        ("unacked_bytes", "3"): 70,
        ("owned_shards",): 2,
        ("fenced_total",): 1,
        ("void_records_total",): 4,
        ("upstream_errors_total", "Produce", "NOT_LEADER_OR_FOLLOWER"): 5,
        ("proxy_bytes_total", "up"): 6,
        ("proxy_connections",): 0,
        ("foreign_members", "orders"): 8,
        ("topics_unseen",): 9,
        ("pending_positions",): 3,
        ("oldest_transaction_seconds",): 2.5,
    }
    alone = text(ALONE, busy())
    assert not [family.name for family in OF_ENGINE if family.name in alone]


def test_transactions_have_figures_once_there_are_any() -> None:
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text(FIGURES, busy()))
        for sample in family.samples
        if family.name in {family.name.removesuffix("_total") for family in OF_TRANSACTIONS}
    }
    server = "kafka_server_"
    assert found == {
        ("muster_transactions", "Ongoing"): 2,
        ("muster_transactions", "Empty"): 0,
        ("muster_transaction_ends_total", "timed out", "aborted"): 3,
        ("muster_transaction_seconds_bucket", "1.0"): 1,
        ("muster_transaction_seconds_bucket", "+Inf"): 1,
        ("muster_transaction_seconds_count",): 1,
        ("muster_transaction_seconds_sum",): 0.5,
        ("muster_log_stable_lag", "1", "orders"): 70,
        ("muster_abort_entries_lost_total",): 6,
        (server + "replicamanager_partitionswithlatetransactionscount",): 4,
        ("kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",): 0,
        (server + "addpartitionstotxnmanager_verificationfailures_total",): 5,
    }
    alone = text(ALONE, busy())
    assert not [family.name for family in OF_TRANSACTIONS if family.name in alone]


def test_a_disk_that_nobody_can_look_at_has_no_figure() -> None:
    assert "muster_disk_free_bytes" not in text(NodeFigures(1, "h:1", "0.1.0"), Instruments())


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text;version=x.y", "application/openmetrics-text;version=", ";;,=", "a" * 9_999]
)
def test_an_accept_header_that_is_none_is_answered(accept: str) -> None:
    form, encode, content_type = negotiate_format(accept)
    assert form.openmetrics == content_type.startswith("application/openmetrics-text")
    assert encode is not None
