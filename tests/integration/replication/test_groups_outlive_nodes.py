"""Groups of real clients lose their coordinator, and notice nothing: ids, generation and partitions stay (CL-K4,
CL-G7)."""

from collections.abc import Iterator, Sequence

import pytest

from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.group_coordinators import LONG, coordinator_of, standing
from tests.support.kafka.stage import NODE, Stage, stage

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster(zookeeper_server: LocalEnsemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    """One for all, each test with a topic and a group of its own: whoever strikes a node heals it."""
    rest = {key: value for key, value in NODE.items() if not key.startswith("group.consumer.session")}
    settings = rest | {"group.consumer.session.timeout.ms": "12000"}
    chroot = f"{zookeeper_server.connect}/groups-outlive-nodes"
    with running_cluster(tmp_path_factory.mktemp("cluster"), chroot, settings=settings) as running:
        yield running


def loses_its_coordinator(cluster: ClusterNodes, play: Stage, *, frozen: bool) -> None:
    """Nobody's assignment changes, nor does what the group says of itself."""
    before, owned = standing(cluster, play.group), [worker.assigned for worker in play.workers]
    lost = coordinator_of(cluster, play.group)
    if frozen:
        cluster.freeze(lost)
    else:
        cluster.nodes[lost].kill()
    play.send(50)
    play.until_all_read()
    assert coordinator_of(cluster, play.group) != lost
    assert standing(cluster, play.group) == before
    if frozen:
        cluster.thaw(lost)
    else:
        cluster.nodes[lost].start()
    play.send(50)
    play.until_all_read()
    assert standing(cluster, play.group) == before
    assert [worker.assigned for worker in play.workers] == owned


@pytest.mark.parametrize(
    ("assignor", "libraries"),
    [
        pytest.param("range", ("confluent", "kafka-python", "aiokafka"), id="eager"),
        pytest.param("cooperative-sticky", ("confluent", "kafka-python"), id="cooperative"),
        pytest.param("consumer", ("confluent", "confluent"), id="kip-848"),
    ],
)
def test_a_group_outlives_the_node_that_coordinates_it(
    cluster: ClusterNodes, assignor: str, libraries: Sequence[str]
) -> None:
    with stage(cluster, assignor) as play:
        for library in libraries:
            play.start(library, **LONG)
        play.until_shared(*play.workers)
        play.send(50)
        play.until_all_read()
        loses_its_coordinator(cluster, play, frozen=False)
        play.until_committed()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "consumer"])
def test_a_group_outlives_a_coordinator_that_stands_still(cluster: ClusterNodes, assignor: str) -> None:
    """Its clients ask elsewhere once it has been silent for three seconds; awake again, it promises nobody anything."""
    with stage(cluster, assignor) as play:
        for _ in range(2):
            play.start("confluent", **LONG, socket_ms="3000")
        play.until_shared(*play.workers)
        play.send(50)
        play.until_all_read()
        loses_its_coordinator(cluster, play, frozen=True)
        play.until_committed()
