"""Nodes that are not there, and trouble that an application is told of."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster.client import Admin, Consumer, Worker, aio
from muster.client.errors import FencedInstance, IllegalState, Unreachable, WrongPort
from muster.client.twins import shared_loop
from tests.support.client_stories import member, poll_until
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration


def test_an_unreachable_node_is_named_with_how_long_it_was_tried(nobody: str) -> None:
    with Admin(bootstrap_servers=nobody, default_api_timeout_ms=300) as admin:
        with pytest.raises(Unreachable, match=nobody) as caught:
            admin.list_topics()
        assert caught.value.address == nobody
        assert caught.value.waited_ms > 0


def test_the_port_for_kafka_s_clients_is_told_as_what_it_is(tmp_path: Path) -> None:
    with (
        running_node(tmp_path / "data", {"kafka.listeners": "127.0.0.1:0"}) as node,
        Admin({"bootstrap.servers": node.kafka_address}) as admin,
        pytest.raises(WrongPort, match=f"{node.kafka_address} speaks Kafka's protocol and not gRPC"),
    ):
        admin.list_topics()


def test_a_second_bootstrap_server_is_tried_when_the_first_is_gone(node: NodeProcess, nobody: str) -> None:
    with Admin(bootstrap_servers=[nobody, node.address]) as admin:
        assert isinstance(admin.list_topics(), dict)


def test_a_node_far_away_is_reached_at_the_first_attempt(node: NodeProcess) -> None:
    far_ms = 300

    async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            sink.write(data)
        sink.close()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(far_ms / 1000)
        there, back = await asyncio.open_connection(*node.address.split(":"))
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    async def story() -> str:
        async with await asyncio.start_server(carry, "127.0.0.1", 0) as relay:
            port = relay.sockets[0].getsockname()[1]
            async with aio.AsyncAdmin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
                return (await admin.create_topic("far-away")).name

    assert shared_loop().run(story()) == "far-away"


def test_polling_needs_something_to_poll_and_no_callback_around_it(node: NodeProcess, topic: str) -> None:
    with member(node, topic) as consumer:
        with pytest.raises(IllegalState, match="nothing to poll"):
            consumer.poll(0)
        consumer.subscribe([topic], on_assign=lambda consumer, partitions: consumer.poll(0))
        with pytest.raises(IllegalState, match="inside a callback"):
            poll_until(lambda: False, consumer, what="the error of the callback")
        assert len(consumer.assignment()) == 4


def test_ctrl_c_leaves_the_group_at_once(node: NodeProcess, admin: Admin, topic: str) -> None:
    script = f"""
from muster.client import Consumer
with Consumer(bootstrap_servers={node.address!r}, group_id={topic!r}) as consumer:
    consumer.subscribe([{topic!r}], on_assign=lambda consumer, partitions: print(len(partitions), flush=True))
    for message in consumer:
        pass
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"4\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    # Its session would have lasted for 45 seconds.
    assert admin.describe_group(topic).state == "Empty"
    assert admin.explain(topic)[0].client_reason == "the consumer is being closed"


def test_a_group_that_cannot_be_reached_at_all_is_an_error_after_the_api_timeout(nobody: str) -> None:
    with Consumer(bootstrap_servers=nobody, group_id="g", default_api_timeout_ms=200) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(Unreachable, match=f"joining group 'g': no answer from {nobody}"):
            poll_until(lambda: False, consumer, what="the error")
    with Worker(bootstrap_servers=nobody, group_id="g", default_api_timeout_ms=200) as worker:
        worker.join(resources=["r"])
        with pytest.raises(Unreachable, match=nobody):
            worker.run()


def test_a_second_process_under_the_same_instance_id_fences_the_first(node: NodeProcess, topic: str) -> None:
    lost: list[str] = []
    first = member(node, topic, group_instance_id="same")
    first.subscribe([topic], on_lost=lambda _, __, event: lost.append(event.cause.name))
    poll_until(lambda: len(first.assignment()) == 4, first, what="assigned")
    second = member(node, topic, group_instance_id="same")
    second.subscribe([topic])
    poll_until(lambda: len(second.assignment()) == 4, second, what="taken over")
    with pytest.raises(FencedInstance, match="same"):
        poll_until(lambda: False, first, what="the error")
    assert lost == ["MEMBER_FENCED"]
    assert first.assignment() == set()
    first.close()
    second.close(leave="leave")


def test_a_process_that_forgets_to_close_ends_by_itself_and_quietly(node: NodeProcess, topic: str) -> None:
    script = f"""
from muster.client import Consumer, Producer
producer = Producer(bootstrap_servers={node.address!r})
producer.send({topic!r}, b"x").result(timeout=30)
consumer = Consumer(bootstrap_servers={node.address!r}, group_id={topic!r}, auto_offset_reset="earliest")
consumer.subscribe({topic!r})
print(consumer.poll(30).value.decode())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"x\n", b"")
