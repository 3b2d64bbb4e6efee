"""A cluster's facts in a real ZooKeeper: registrations, a controller's writes, what is read back and asked for."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_TOPIC_ID,
    ClusterImage,
    ClusterNode,
    ClusterTopic,
    ImageVersion,
    NodeEndpoint,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.controller import events_and_effects
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AdminMarker,
    ClusterVersion,
    WriteFailure,
)
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.cluster_backend.cluster_description import LeftOutTopics
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.cluster.cluster_layout import SessionLength
from muster.coordinator.zookeeper.cluster.cluster_watches import (
    CONFIG_CHANGE_RETENTION_MS,
    AdminRequestWatch,
    ClusterTopicsWatch,
    ConfigChangeWatch,
    NodeWatch,
    read_states,
    read_stored_version,
    take_producer_ids,
)
from muster.coordinator.zookeeper.cluster.cluster_writes import DecisionWriter
from muster.coordinator.zookeeper.cluster.registration import (
    ClusterRegistration,
    MixedNodeKinds,
    read_login,
    record_session_length,
    settle_node_secret,
)
from muster.coordinator.zookeeper.errors import LoginUnreadable, MalformedZnode, NoAuth
from muster.coordinator.zookeeper.node_registry import NodeIdTaken
from muster.coordinator.zookeeper.session import ZooKeeperSession
from tests.integration.conftest import Run
from tests.integration.zookeeper.test_zookeeper_session import expire, session

DIRECTORY = "a" * 22
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STATE = PartitionState(2, 7, (2, 3), (1,), {1: "x", 2: "y"}, controller_epoch=4, cause="node 1 died")


def node(directory: str = DIRECTORY, node_id: int = 1, host: str = "h") -> ClusterNode:
    return ClusterNode(node_id, NO_EPOCH, directory, endpoints=endpoints(host), rack="r1")


def endpoints(host: str) -> tuple[NodeEndpoint, ...]:
    return NodeEndpoint("PLAINTEXT", host, 9092), NodeEndpoint("REPLICATION", host, 9094)


def registration(zk: ZooKeeperSession, directory: str = DIRECTORY) -> ClusterRegistration:
    return ClusterRegistration(zk, lambda: node(directory), wall_ms=lambda: 5)


class Told(asyncio.Queue[int]):
    """Node epochs, as they are told."""

    async def next(self) -> int:
        async with asyncio.timeout(30):
            return await self.get()


def unheard(text: str) -> None:
    raise AssertionError(text)


async def term(zk: ZooKeeperSession) -> None:
    await zk.create(paths.CONTROLLER_EPOCH, b"4")
    for root in ("/muster/cluster", paths.BROKER_TOPICS, paths.DELETE_TOPICS, paths.CONFIG_TOPICS):
        await zk.ensure(root)


def writer(zk: ZooKeeperSession) -> DecisionWriter:
    return DecisionWriter(zk, draw_id=lambda: bytes(16), configs_of=lambda name: {"cleanup.policy": "compact"})


def write(
    sequence: int, at: int, *operations: events_and_effects.WriteOperation, epoch_version: int = 0
) -> events_and_effects.WriteMulti:
    return events_and_effects.WriteMulti(4, epoch_version, sequence, at, operations)


def test_a_node_takes_over_from_its_own_former_life_and_from_nobody_else(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as one, session(zookeeper) as two, session(zookeeper) as three:
            first = await registration(one).register()
            second = await registration(two).register()  # CL-Z3: its own directory, so it is gone
            assert second > first
            with pytest.raises(
                NodeIdTaken, match="registered by the node at h:9092 already, with another data directory"
            ):
                await registration(three, "b" * 22).register()
            found = await three.get(paths.broker_path(1))
            assert found is not None
            assert (found.made, found.owner) == (second, two.id)
            assert await NodeWatch(three, lambda: None, unheard).read() == {
                1: ClusterNode(1, second, DIRECTORY, endpoints=endpoints("h"), rack="r1")
            }

    run(story)


def test_a_node_registers_anew_when_it_is_told_to_and_when_its_session_was_lost(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as zk:
            told = Told()
            kept = ClusterRegistration(
                zk,
                node,
                wall_ms=lambda: 5,
                on_registered=told.put_nowait,
            )
            first = await kept.register()
            assert await told.next() == first
            kept.start()
            kept.register_again(kept.epoch - 1)  # of a former registration: nothing to do
            kept.register_again(kept.epoch)
            second = await told.next()
            await asyncio.to_thread(expire, zk)
            third = await told.next()
            await zk.delete(paths.broker_path(1))  # by hand
            assert first < second < third < await told.next()
            await kept.stop()

    run(story)


def test_a_node_whose_place_another_one_has_taken_while_it_ran_is_told_so(zookeeper: str, run: Run) -> None:
    """CL-Z3: it went on without a registration for good, and led nothing, before."""

    async def story() -> None:
        async with session(zookeeper) as mine, session(zookeeper) as other:
            taken: asyncio.Queue[NodeIdTaken] = asyncio.Queue()
            kept = ClusterRegistration(
                mine,
                node,
                wall_ms=lambda: 5,
                on_taken=taken.put_nowait,
            )
            await kept.register()
            kept.start()
            body = cluster_layout.registration_json(node("b" * 22, host="new"), timestamp_ms=5)

            def instead(together: Any) -> None:
                together.delete(paths.broker_path(1))
                together.create(paths.broker_path(1), body, ephemeral=True)

            await other.commit(instead)
            async with asyncio.timeout(30):
                assert "registered by the node at new:9092 already" in str(await taken.get())
            await kept.stop()

    run(story)


def test_of_the_nodes_that_come_first_one_draws_the_secret_of_all(zookeeper: str, run: Run) -> None:
    """CL-N4."""

    async def story() -> None:
        async with session(zookeeper) as one, session(zookeeper) as two:
            drawn = [bytes([number]) * 32 for number in (1, 2)]
            first, second = await asyncio.gather(settle_node_secret(one, drawn[0]), settle_node_secret(two, drawn[1]))
            assert first == second == await settle_node_secret(one, b"3" * 32)
            assert first in drawn
            await one.put("/muster/cluster/secret", b'{"version":1,"secret":"c2hvcnQ="}')
            with pytest.raises(MalformedZnode, match=r"expected JSON with a secret of 32 bytes") as refused:
                await settle_node_secret(one, drawn[0])
            assert "c2hvcnQ" not in str(refused.value)

    run(story)


def test_the_secret_is_for_those_who_log_in_as_nodes_do(zookeeper: str, tmp_path: Path, run: Run) -> None:
    """One that was made before there was a login is given to it."""
    file = tmp_path / "login"
    file.write_text("muster:hushed\n")

    async def story() -> None:
        async with session(zookeeper) as stranger, session(zookeeper, login=read_login(str(file))) as node:
            drawn = await settle_node_secret(stranger, b"1" * 32)
            assert await settle_node_secret(node, b"2" * 32) == drawn
            with pytest.raises(NoAuth, match=r"cannot be read without zookeeper\.digest\.file"):
                await settle_node_secret(stranger, b"3" * 32)
            await node.delete("/muster/cluster/secret")
            assert await settle_node_secret(node, b"4" * 32) == b"4" * 32
            with pytest.raises(NoAuth):
                await stranger.get("/muster/cluster/secret")
            await stranger.create("/muster/cluster/beside")  # its parents are nobody's

    run(story)


@pytest.mark.parametrize("text", ["", "muster", "muster:", ":hushed", "a:b\nc:d"])
def test_a_file_without_a_login_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "login"
    file.write_text(text)
    with pytest.raises(LoginUnreadable, match=r"zookeeper\.digest\.file is .*login; expected one line, USER:PASSWORD"):
        read_login(str(file))
    with pytest.raises(LoginUnreadable, match="which cannot be read"):
        read_login(str(tmp_path / "none"))


def test_a_node_registers_so_that_nodes_of_an_earlier_version_find_it(zookeeper: str, run: Run) -> None:
    earlier = (
        b'{"host":"h","port":1,"version":4,"endpoints":["REPLICATION://h:2"],'
        b'"muster":{"directory":"d","unclean":false,"features":1}}'
    )

    async def story() -> None:
        async with session(zookeeper) as zk:
            await zk.create(paths.broker_path(7), earlier)
            kept = registration(zk)
            await kept.register()
            for listed in (["PLAINTEXT://h:9092", "REPLICATION://h:9094"], ["PLAINTEXT://h:9092"]):
                found = await zk.get(paths.broker_path(1))
                assert found is not None
                assert json.loads(found.data)["endpoints"] == listed
                await zk.delete(paths.broker_path(7))
                await zk.delete(paths.broker_path(1))
                await kept.register()

    run(story)


def test_nodes_that_make_no_cluster_are_named(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as zk:
            await zk.create(paths.broker_path(7), paths.BrokerZnode("old", 9092).to_json())
            with pytest.raises(MixedNodeKinds, match="7 at old:9092"):
                await registration(zk).register()
            warned: list[str] = []
            nodes = NodeWatch(zk, lambda: None, warned.append)
            assert [await nodes.read(), await nodes.read()] == [{}, {}]
            assert len(warned) == 1

    run(story)


def test_states_are_written_byte_for_byte_and_read_back(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as zk:
            await term(zk)
            desk = writer(zk)
            made = events_and_effects.CreateInternalTopic(
                "t", (ReplicaAssignment((1, 2, 3)), ReplicaAssignment((2, 3, 1)))
            )
            assert await desk.write(write(1, NO_EPOCH, made)) == events_and_effects.MultiWritten(1)
            done = await desk.write(
                write(2, 0, *(events_and_effects.PutPartitionState(each, STATE, NO_EPOCH) for each in (T0, T1)))
            )
            assert done == events_and_effects.MultiWritten(2)
            found = await zk.get("/brokers/topics/t/partitions/1/state")
            assert found is not None
            assert found.data == (
                b'{"controller_epoch":4,"leader":2,"version":1,"leader_epoch":7,"isr":[2,3],'
                b'"muster":{"elr":[1],"dirs":{"1":"x","2":"y"},"cause":"node 1 died"}}'
            )
            version = await zk.get("/muster/cluster/version")
            assert version is not None
            assert version.data == b'{"version":1,"controller_epoch":4,"sequence":2}'
            assert await read_stored_version(zk, unheard) == ClusterVersion(ImageVersion(4, 2), 1)
            topics = ClusterTopicsWatch(zk, lambda: None, unheard)
            seen = await topics.read()
            assert seen == events_and_effects.TopicsRead(
                (ClusterTopic("t", bytes(16), made.partitions, {"cleanup.policy": "compact"}, 0),), complete=True
            )
            states, broken = await read_states(zk, seen.topics, unheard)
            assert broken == ()
            assert {place: state.partition_epoch for place, state in states.items()} == {T0: 0, T1: 0}
            # A topic is deleted with all that is below it, its settings and its marker.
            await zk.create(paths.topic_deletion_path("t"))
            await zk.create("/brokers/topics/t/partitions/0/left/behind")
            drops = (
                *(events_and_effects.DeletePartitionState(each, 0) for each in (T0, T1)),
                events_and_effects.DeleteTopicZnode("t", 0),
            )
            assert await desk.write(write(3, 1, *drops)) == events_and_effects.MultiWritten(3)
            for path in ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"):
                assert not await zk.exists(path)

    run(story)


def test_what_a_write_failed_on_is_told(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as zk:
            await term(zk)
            desk = writer(zk)
            await desk.write(
                write(1, NO_EPOCH, events_and_effects.CreateInternalTopic("t", (ReplicaAssignment((1,)),)))
            )
            put = events_and_effects.PutPartitionState(T0, STATE, NO_EPOCH)
            assert await desk.write(write(2, 0, put, epoch_version=1)) == events_and_effects.WriteFailed(
                2, WriteFailure.EPOCH
            )
            assert not await zk.exists("/brokers/topics/t/partitions")  # nothing is left of it
            assert await desk.write(write(2, 7, put)) == events_and_effects.WriteFailed(2, WriteFailure.VERSION)
            assert await desk.write(write(2, 0, put)) == events_and_effects.MultiWritten(2)
            assert await desk.write(write(3, 1, put._replace(at=4))) == events_and_effects.WriteFailed(
                3, WriteFailure.VERSION
            )
            gone = events_and_effects.PutPartitionState(TopicPartition("gone", 0), STATE, NO_EPOCH)
            assert await desk.write(write(3, 1, gone)) == events_and_effects.WriteFailed(3, WriteFailure.VERSION)
            assert await read_stored_version(zk, unheard) == ClusterVersion(ImageVersion(4, 2), 1)
        assert await desk.write(write(3, 1)) == events_and_effects.WriteFailed(3, WriteFailure.LOST)

    run(story)


def test_what_cannot_be_read_is_named_and_left_out(zookeeper: str, run: Run) -> None:
    """CL-C13: the others go on; a topic that was known stays as it was."""

    async def story() -> None:
        async with session(zookeeper) as zk:
            await term(zk)
            warned: list[str] = []
            await writer(zk).write(
                write(
                    1,
                    NO_EPOCH,
                    events_and_effects.CreateInternalTopic("t", (ReplicaAssignment((1,)), ReplicaAssignment((1,)))),
                )
            )
            await zk.create("/brokers/topics/bad", b"?")
            await zk.create("/brokers/topics/t/partitions/1/state", b"[]")
            fired = asyncio.Event()
            topics = ClusterTopicsWatch(zk, fired.set, warned.append)
            seen = await topics.read()
            assert [topic.name for topic in seen.topics] == ["t"]
            assert "/brokers/topics/bad" in warned[0]
            assert await read_states(zk, seen.topics, warned.append) == ({}, (T1,))
            await zk.put("/brokers/topics/t", b"?")
            await fired.wait()
            assert (await topics.read()).topics == seen.topics
            await zk.write("/muster/cluster/version", b"?")
            assert await read_stored_version(zk, warned.append) == ClusterVersion(version=1)

    run(story)


def test_topics_that_an_older_tool_wrote_get_their_ids(zookeeper: str, run: Run) -> None:
    """CL-A11: as kafka-topics --zookeeper of Kafka before 2.8 alters one, and makes another."""

    async def story() -> None:
        async with session(zookeeper) as zk:
            await term(zk)
            desk = writer(zk)
            made = events_and_effects.CreateInternalTopic("t", (ReplicaAssignment((1,)),))
            await desk.write(write(1, NO_EPOCH, made))
            await desk.write(write(2, 0, events_and_effects.PutPartitionState(T0, STATE, NO_EPOCH)))
            await zk.put("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
            await zk.create("/brokers/topics/new", b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{}}')
            topics = ClusterTopicsWatch(zk, lambda: None, unheard)
            seen = await topics.read()
            one = (ReplicaAssignment((1,)),)
            configs = {"cleanup.policy": "compact"}
            new = ClusterTopic("new", NO_TOPIC_ID, one, version=0)
            grown = ClusterTopic("t", NO_TOPIC_ID, 2 * one, configs, version=1)
            assert seen == events_and_effects.TopicsRead(
                (),
                complete=True,
                unidentified=(
                    events_and_effects.UnidentifiedTopic(new, None),
                    events_and_effects.UnidentifiedTopic(grown, frozenset({1, 2, 3})),
                ),
            )
            puts = (events_and_effects.PutTopicZnode(topic) for topic in (new, replace(grown, topic_id=b"i" * 16)))
            assert await desk.write(write(3, 1, *puts)) == events_and_effects.MultiWritten(3)
            topics.suspect_all()
            assert (await topics.read()).topics == (
                replace(new, topic_id=bytes(16), version=1),
                replace(grown, topic_id=b"i" * 16, version=2),
            )

    run(story)


def test_topics_that_are_left_out_are_conditions_until_they_are_mended(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as zk:
            await term(zk)
            image, conditions = ClusterImage(), Conditions(lambda: 5)
            left_out = LeftOutTopics(zk, image, conditions)

            async def named() -> dict[str, str]:
                await left_out.look()
                return {each.name: each.sentence for each in conditions.current()}

            known = ClusterTopic("known", b"k" * 16, (ReplicaAssignment((1,)),))
            image.topics["known"] = TopicView(known.topic_id, "known")
            await zk.create("/brokers/topics/known", cluster_layout.topic_json(known))
            await zk.create("/brokers/topics/soon", cluster_layout.topic_json(replace(known, name="soon")))
            await zk.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[3,1],"1":[1,2]}}')
            await zk.create("/brokers/topics/bad", b"?")
            assert await named() == {}, "the controller may be about to mend it"
            found = await named()
            assert list(found) == ["topic-left-out:bad", "topic-left-out:t"]
            assert "/brokers/topics/bad holds b'?'" in found["topic-left-out:bad"]
            assert "says no topic_id" in found["topic-left-out:t"]
            assert "on nodes 1, 2, 3" in found["topic-left-out:t"]
            await zk.put("/brokers/topics/t", cluster_layout.topic_json(replace(known, name="t")))
            await zk.delete("/brokers/topics/bad")
            assert await named() == {}

    run(story)


def test_what_operators_ask_for_is_told_once_and_removed(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as zk:
            await term(zk)
            warned: list[str] = []
            fired = asyncio.Event()
            markers = AdminRequestWatch(zk, fired.set, warned.append)
            assert await markers.read() == []
            await zk.create(paths.PREFERRED_REPLICA_ELECTION, cluster_layout.preferred_json([T0]))
            await zk.create(cluster_layout.REASSIGN_PARTITIONS, cluster_layout.reassignment_json({T1: (4, 5)}))
            await zk.create(paths.topic_deletion_path("t"))
            await fired.wait()
            delete = events_and_effects.TopicDeletionsRead(("t",))
            preferred = events_and_effects.ElectLeadersRequested(None, (T0,))
            assert await markers.read() == [
                preferred,
                events_and_effects.ReassignmentRequested(None, {T1: (4, 5)}),
                delete,
            ]
            assert await markers.read() == [delete]
            await markers.remove(events_and_effects.RemoveMarker(AdminMarker.DELETE, "t"))
            await markers.remove(events_and_effects.RemoveMarker(AdminMarker.REASSIGN))
            await zk.put(paths.PREFERRED_REPLICA_ELECTION, cluster_layout.preferred_json([T1]))
            await markers.remove(
                events_and_effects.RemoveMarker(AdminMarker.PREFERRED)
            )  # of the first: another is there by now
            assert await markers.read() == [events_and_effects.ElectLeadersRequested(None, (T1,))]
            again = {T0: (5, 6)}
            await zk.create(cluster_layout.REASSIGN_PARTITIONS, cluster_layout.reassignment_json(again))
            # The removal is asked for again, for its answer was lost: this one has the same version as the one before.
            await markers.remove(events_and_effects.RemoveMarker(AdminMarker.REASSIGN))
            assert await markers.read() == [events_and_effects.ReassignmentRequested(None, again)]
            await markers.remove(events_and_effects.RemoveMarker(AdminMarker.REASSIGN))
            await zk.create(cluster_layout.REASSIGN_PARTITIONS, b"?")
            assert await markers.read() == []
            assert not await zk.exists(cluster_layout.REASSIGN_PARTITIONS)
            assert len(warned) == 1

    run(story)


def test_changes_of_settings_are_told_once_and_go_after_a_quarter_of_an_hour(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as zk:
            clock = [0]
            changes = ConfigChangeWatch(zk, lambda: None, unheard, lambda: clock[0])
            assert await changes.read() == set()
            path = f"{cluster_layout.CONFIG_CHANGE}0000000001"
            await zk.create(path, paths.config_change_json("topics/t"))
            assert await changes.read() == {("topics", "t")}
            found = await zk.get(path)
            assert found is not None
            clock[0] = found.created_ms + CONFIG_CHANGE_RETENTION_MS - 1
            assert await changes.read() == set()
            assert await zk.exists(path)
            clock[0] += 1
            assert await changes.read() == set()
            assert not await zk.exists(path)

    run(story)


def test_no_producer_id_is_taken_twice(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as one, session(zookeeper) as two:
            blocks = await asyncio.gather(*(take_producer_ids(zk, 1) for zk in (one, two) for _ in range(5)))
            assert sorted(block.first for block in blocks) == [1_000 * number for number in range(10)]

    run(story)


def test_the_longest_session_of_any_node_is_known_to_who_starts(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with session(zookeeper) as zk:
            assert await record_session_length(zk, 1, SessionLength(6_000, "one")) == 6_000
            assert await record_session_length(zk, 2, SessionLength(9_000, "two")) == 9_000
            assert await record_session_length(zk, 1, SessionLength(6_000, "one")) == 9_000, (
                "node 2 may lead yet, unseen"
            )
            # Its former life is over: the directory was locked.
            assert await record_session_length(zk, 2, SessionLength(4_000, "two")) == 6_000
            # Another disk: that life may go on somewhere.
            assert await record_session_length(zk, 1, SessionLength(3_000, "another")) == 6_000
            written = await zk.get(f"{cluster_layout.SESSIONS}/1")
            assert written is not None
            assert written.data == b'{"version":1,"session_ms":6000,"directory":"another"}'

    run(story)
