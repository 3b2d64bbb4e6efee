"""Consumers of that era on an ensemble of three whose leader dies, and that loses its majority for a while."""

from pathlib import Path

import pytest

from muster.client import Consumer
from muster.client.errors import ZookeeperAway
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from tests.support.client_stories import Told, poll_until, read
from tests.support.zookeeper.consumers import create, era_node, era_properties, fill, wait_for


def committed(consumer: Consumer) -> bool:
    """The connection may take a moment longer to be back than the ensemble."""
    try:
        consumer.commit()
    except ZookeeperAway:
        return False
    return True


def test_consumers_read_on_while_the_ensemble_stumbles(tmp_path: Path, zookeeper_ensemble: LocalEnsemble) -> None:
    zookeeper = f"{zookeeper_ensemble.connect}/stumbling"
    told = Told()
    with era_node(tmp_path, zookeeper) as node:
        create(node, t=4)
        properties = era_properties(zookeeper, zookeeper_session_timeout_ms=4_000, default_api_timeout_ms=1_000)
        with Consumer(properties) as first, Consumer(properties) as second:
            for consumer in (first, second):
                consumer.subscribe("t", **told.callbacks())
            poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second, what="two each")
            told.revoked.clear()

            leader = zookeeper_ensemble.leader()
            zookeeper_ensemble.kill(leader)
            fill(node, "t", 4, 8)
            assert len(read(first, 4)) + len(read(second, 4)) == 8
            zookeeper_ensemble.restart(leader)

            # Without a majority nothing can be claimed or committed, but everybody keeps what it has.
            down = [server.number for server in zookeeper_ensemble.servers][:2]
            for number in down:
                zookeeper_ensemble.kill(number)
            fill(node, "t", 4, 8, first=8)
            assert len(read(first, 4)) + len(read(second, 4)) == 8
            with pytest.raises(ZookeeperAway, match=r"did not answer for 1000 ms; is a majority"):
                first.commit()
            # The first of the two waits for the second: one alone is no majority.
            zookeeper_ensemble.server(down[0]).launch()
            zookeeper_ensemble.restart(down[1])
            wait_for(lambda: committed(first), "a commit")
            assert (told.lost, told.revoked) == ([], []), "no session ended, so nothing moved"

            with Consumer(properties) as third:
                third.subscribe("t")
                poll_until(lambda: bool(third.assignment()), first, second, third, what="a newcomer gets its share")
