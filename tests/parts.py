"""The suite in parts: what each covers, and whether `make test` runs it or `make verify`.

`make verify` runs what has the mark `verify`, `make test` what has it not; the mark is given by the tables below and
nowhere else, so that together they are everything. Only `tests/interop`, which wants clients of other runtimes, has a
target of its own. A test belongs to the part that names it most exactly: itself, its file, or its folder.
"""

from functools import cache
from typing import NamedTuple


class Part(NamedTuple):
    name: str
    covers: str
    where: tuple[str, ...]
    """Folders (they end with a slash), files, or tests, which stand for all their parameters."""

    def names(self, test: str) -> int:
        """How exactly the test of this node id is named here: the length of the place, 0 if it is not."""
        return max((len(place) for place in self.where if is_at(test, place)), default=0)


def is_at(test: str, place: str) -> bool:
    return test == place or test.startswith(place if place.endswith("/") else f"{place}::")


INTEGRATION = "tests/integration/"

REAL_RUNS = (
    Part(
        "spark",
        "a real node's topics as tables, and a sink, in one Spark session",
        (
            f"{INTEGRATION}spark/test_spark_read.py::test_rows_are_those_of_spark_s_kafka_source",
            f"{INTEGRATION}spark/test_spark_read.py::test_a_batch_job_commits_what_it_has_read",
            f"{INTEGRATION}spark/test_spark_fetch.py::test_two_ranges_of_one_partition_may_be_in_one_task",
            f"{INTEGRATION}spark/test_spark_sink.py::test_all_columns_arrive",
        ),
    ),
    Part(
        "demo",
        "the story of README: a worker is killed, another joins, no line is lost",
        (f"{INTEGRATION}cli/test_demo_run.py::test_a_worker_is_killed_and_no_line_is_lost",),
    ),
    Part(
        "plugins",
        "assignors that fail, loop or print, each in a process of its own beside a real node",
        (
            f"{INTEGRATION}node/test_plugin_node.py::test_a_bad_plugin_is_refused_when_it_is_set",
            f"{INTEGRATION}node/test_plugin_node.py::test_one_that_prints_is_as_good_as_any",
        ),
    ),
    Part(
        "node",
        "a node by gRPC: groups of each protocol, commits, bounds, its health, its end; Consumer and Producer",
        (
            f"{INTEGRATION}node/test_grpc_edge_node.py",
            f"{INTEGRATION}members/test_consumer_groups.py::test_two_members_share_a_topic_and_a_restart_changes_nothing",
            f"{INTEGRATION}members/test_central_consumer.py::test_members_share_hand_over_and_take_over",
            f"{INTEGRATION}client/test_client_consumer.py",
        ),
    ),
    Part(
        "kafka's door",
        "confluent-kafka, kafka-python, aiokafka and kcat write, read, administrate, share a group; a broker's answers",
        (
            f"{INTEGRATION}kafka/test_kafka_log_clients.py",
            f"{INTEGRATION}kafka/test_transaction_answers.py",
            f"{INTEGRATION}kafka/test_kafka_group_clients.py::test_a_pattern_follows_topics_that_grow_and_go",
        ),
    ),
    Part(
        "http",
        "a node's HTTP listener: probes, the JSON API, live events, actions, its end",
        (f"{INTEGRATION}web/",),
    ),
    Part(
        "certificates",
        "clients of Kafka, gRPC and HTTP over TLS, known by their certificates",
        (f"{INTEGRATION}security/test_tls_clients.py",),
    ),
    Part(
        "web page",
        "a real Chromium sees who owns what, what moved last and why",
        (f"{INTEGRATION}page/test_page.py::test_a_stranger_sees_who_owns_what_and_what_moved_last",),
    ),
    Part(
        "zookeeper",
        "a real ZooKeeper: consumers of that era share, are shown and moved to a coordinator",
        (
            f"{INTEGRATION}zookeeper/test_zookeeper_cli.py::test_two_consumers_as_the_command_line_shows_them",
            f"{INTEGRATION}zookeeper_consumer/test_zookeeper_layout.py::test_a_group_lies_where_every_tool_of_that_era_looks",
            f"{INTEGRATION}zookeeper_consumer/test_migrate_offsets.py::test_positions_move_to_the_coordinator_and_back",
        ),
    ),
    Part(
        "over a kafka",
        "what the engine says to an upstream, against three brokers that librdkafka mocks",
        (f"{INTEGRATION}kafka_backend/test_upstream_mock.py",),
    ),
    Part(
        "command line",
        "the commands against a real node, in pipes too, and README's example",
        (
            f"{INTEGRATION}cli/test_cli_node.py",
            f"{INTEGRATION}cli/test_cli_pipes.py",
            f"{INTEGRATION}cli/test_cli_readme.py",
        ),
    ),
)
"""One real run per component: what `make test` takes of those that start processes."""

FAST = (
    Part(
        "simulator",
        "seeded runs of engine, log, members and assignors under faults, on a virtual clock",
        ("tests/sim/",),
    ),
    Part(
        "properties",
        "what holds for any input: models, codecs, fuzz targets, power loss",
        ("tests/property/", "tests/fuzz/"),
    ),
    Part(
        "units",
        "every room by itself; documentation, packaging, deployment",
        ("tests/unit/", "tests/truth/"),
    ),
    Part("stories", "the protocol, step by step: a command and its full trace", ("tests/scripts/",)),
    Part("vectors", "logs and plans of Kafka's own, byte for byte", ("tests/vectors/",)),
    Part(
        "examples",
        "what docstrings show",
        ("muster/", "assignors/", "coordinator/", "storage/", "pyspark_muster/", "tests/support/"),
    ),
)

REST = (
    Part("many nodes, all", "copies over real logs and doors, the loss of a leader", (f"{INTEGRATION}replication/",)),
    Part(
        "spark, all", "streams, groups, sinks, pipelines; clusters, Connect, killed drivers", (f"{INTEGRATION}spark/",)
    ),
    Part(
        "zookeeper, all",
        "sessions, elections, faults, an ensemble that loses its majority, moves to other protocols",
        (f"{INTEGRATION}zookeeper/", f"{INTEGRATION}zookeeper_consumer/"),
    ),
    Part(
        "members, all", "every protocol by gRPC: sessions, takeovers, failovers, workers", (f"{INTEGRATION}members/",)
    ),
    Part(
        "clients, all",
        "asyncio, producers, operators, workers, trouble",
        (
            f"{INTEGRATION}client/",
            f"{INTEGRATION}client/test_client_consumer.py::test_a_consumer_survives_its_node_and_loses_nothing",
        ),
    ),
    Part(
        "units, the long ones",
        "a kill at every call of the disk, large states, plugins in processes, what the lab and its pages show",
        (
            "tests/property/runtime/test_fences.py",
            "tests/property/storage/test_reader_filter.py::test_compaction_between_two_fetches_shows_nothing_aborted_and_hides_nothing_that_is_newest",
            "tests/unit/watch/test_kept_ledger.py",
            "tests/unit/cli/test_demo_watch.py::test_without_java_the_same_is_told_of_a_recording",
            "tests/unit/storage/test_crashes.py",
            "tests/unit/storage/test_log_threads.py",
            "tests/unit/client/members/test_zookeeper_page.py::test_the_page_shows_what_a_join_costs",
            "tests/unit/docs/test_protocol_pages.py::test_the_page_on_central_groups_shows_what_the_lab_finds",
            "tests/unit/assignors/isolation/",
            "tests/unit/docs/test_reference.py::test_twins_are_shown_as_the_methods_that_they_are",
            "tests/unit/kafka/rights/test_rights_matrix.py",
            "tests/unit/kafka/test_kafka_many_offsets.py",
            "tests/unit/kafka/test_kafka_many_produced.py",
            "tests/unit/kafka_backend/test_proxy_streams.py",
            "tests/unit/security/test_security_store.py",
            "tests/unit/server/test_garbage_collection.py",
            "tests/unit/server/test_worker_threads.py",
            "tests/unit/spark/pipelines/test_pipeline_backtest.py",
            "tests/unit/spark/test_spark_imports.py",
            "tests/unit/storage/test_columns_run.py",
            "tests/unit/storage/test_many_partitions.py",
            "tests/unit/storage/test_staging.py::test_a_crash_anywhere_neither_loses_nor_doubles_anything",
            "tests/unit/test_parts.py",
            "tests/unit/test_tasks_watched.py",
            "tests/unit/web/pages/test_page_of_a_stand_in.py",
            "tests/unit/workshop/",
            "tests/unit/zookeeper/test_zookeeper_extra.py",
        ),
    ),
    Part(
        "http, all",
        "hostile requests, streams of events, a real Prometheus that scrapes a real node",
        (
            f"{INTEGRATION}web/test_http_hostile.py",
            f"{INTEGRATION}web/test_http_events.py",
            f"{INTEGRATION}web/test_prometheus.py",
        ),
    ),
    Part(
        "node, all",
        "the edge, health, settings, simulations, kills, plugins of every bad kind",
        (f"{INTEGRATION}node/",),
    ),
    Part(
        "certificates, all",
        "certificates that change under load; handshakes broken off, garbage, slow readers",
        (
            f"{INTEGRATION}security/",
            f"{INTEGRATION}security/test_tls_clients.py::test_certificates_are_changed_under_load_and_no_request_fails",
        ),
    ),
    Part(
        "kafka's door, all",
        "groups and offsets in every version, mixed groups, hostile bytes",
        (
            f"{INTEGRATION}kafka/",
            f"{INTEGRATION}kafka/test_kafka_log_clients.py::test_an_idempotent_producer_survives_a_kill_of_the_node_without_a_loss_or_a_repeat",
        ),
    ),
    Part(
        "over a kafka, all",
        "the state topic of a real broker, and kills (make engine)",
        (f"{INTEGRATION}kafka_backend/",),
    ),
    Part("command line, all", "refused starts, interrupted demos, consumer-groups, the lab", (f"{INTEGRATION}cli/",)),
    Part(
        "simulator, all",
        "as many seeds as it takes to meet everything that is wanted, and parts that are broken on purpose",
        (
            "tests/sim/test_sim.py::test_many_runs_break_nothing_and_meet_everything",
            "tests/sim/test_sim.py::test_a_seed_is_one_run_under_any_hash_seed",
            "tests/sim/test_zookeeper_sim.py::test_no_seed_breaks_a_rule",
            "tests/sim/test_zookeeper_sim.py::test_too_few_retries_leave_partitions_without_an_owner_and_none_with_two",
            "tests/sim/test_central_sim.py::test_no_seed_breaks_a_rule",
            "tests/sim/test_central_sim.py::test_a_coordinator_that_lets_a_lost_one_go_on_with_anything_is_caught",
            "tests/sim/test_central_sim.py::test_a_node_that_expires_whom_it_has_not_heard_is_caught",
            "tests/sim/replication/test_cluster_sim.py::test_a_run_does_not_depend_on_how_words_are_hashed",
            "tests/sim/replication/test_unit_schedules.py::test_no_schedule_breaks_a_rule",
            "tests/sim/replication/test_cluster_sim.py::test_clusters_in_bad_weather",
            "tests/sim/replication/test_cluster_positions.py::test_many_clusters_keep_positions_right_and_meet_everything",
            "tests/sim/test_sim.py::test_each_checker_catches_what_is_broken_on_purpose",
            "tests/sim/transactions/test_transactions_sim.py::test_a_seed_is_one_run_under_any_hash_seed",
            "tests/sim/transactions/test_transactions_sim.py::test_each_rule_can_be_broken",
            "tests/sim/transactions/test_transactions_sim.py::test_many_runs_break_nothing_and_meet_everything",
            "tests/sim/test_zookeeper_sim.py::test_every_rule_can_be_broken",
            "tests/sim/replication/test_unit_schedules.py::test_each_rule_can_be_broken",
            "tests/sim/replication/test_world_mutants.py::test_without_the_rule_a_checker_finds_it",
            "tests/sim/kafka_backend/test_engine_sim.py::test_a_mutant_is_caught_by_one_of_some_seeds",
            "tests/sim/test_sim.py::test_a_group_of_what_is_left_beside_a_damaged_record_never_comes_to_rest",
        ),
    ),
    Part(
        "web page, all",
        "every page, light and dark, wide and narrow; liveness, hostile names, 10,000 partitions, restarts",
        (f"{INTEGRATION}page/",),
    ),
    Part(
        "truth",
        "what is reported about a rebalance is what happened, with Python clients (python -m tests.truth: all)",
        ("tests/truth/test_truth.py",),
    ),
    Part("torture", "kills, full disks, stalls and a short soak", ("tests/torture/",)),
    Part("benchmarks", "each runs and reports, at a size that proves nothing about speed", ("tests/bench/",)),
    Part("other runtimes", "Java, JavaScript, Go, kcat and a real broker (make interop)", ("tests/interop/",)),
    Part("era", "programs of Kafka 0.8.2 to 1.1, where their jars are (make era)", ("tests/era/",)),
)

PARTS = (*REAL_RUNS, *FAST, *REST)


class NoPart(Exception):
    """A test that no table has."""


def part_of(test: str) -> Part:
    """Where the test of this node id belongs, whatever its parameters; raises `NoPart` if nowhere."""
    return part_of_function(test.partition("[")[0])


@cache
def part_of_function(test: str) -> Part:
    part = max(PARTS, key=lambda part: part.names(test))
    if not part.names(test):
        raise NoPart(f"{test} belongs to no part of the suite; name its folder in tests/parts.py")
    return part


def is_for_verify(part: Part) -> bool:
    return part in REST


def starts_processes(part: Part) -> bool:
    """Whether its tests run nodes, clients or commands as processes: they have the mark `integration`."""
    return part in REAL_RUNS or any(
        place.startswith((INTEGRATION, "tests/torture/", "tests/era/", "tests/truth/test_truth"))
        for place in part.where
    )
