"""A node as a process: logs, event loop, signals, exit code."""

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import TextIO

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.config.tls import BadCertificate
from muster.coordinator.edge.overload import keep_freed_memory, share_arenas
from muster.coordinator.runtime.group_log import PartitionCountConflict
from muster.coordinator.server.backend.upkeep import NodeIdInUse, SurvivorFreezer
from muster.coordinator.server.grpc.listener import AddressTaken
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.server.node_events import log_start
from muster.coordinator.server.node_log import configure_logs
from muster.coordinator.zookeeper.errors import ForeignTopics, ZooKeeperError
from muster.coordinator.zookeeper.node_registry import NodeIdTaken
from muster.storage.errors import DataDirectoryError, StorageError

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_CONFLICT = 5

YOUNG_OBJECTS = 10_000
"""Objects between two collections of the youngest generation: requests make many and keep none."""

MIDDLE_AFTER, OLD_AFTER = 2, 160
"""Collections of a generation before the next older one has its turn. A collection holds everything up for as long as
it looks, so the younger ones look at little; the oldest, which takes longest, comes as seldom as it did."""

KEPT_BYTES = 128 << 20
"""Freed memory that a node keeps for the next answers."""

SWITCH_S = 0.0002
"""How long a thread that computes (a replay, a compaction, topics in the making) may keep the event loop waiting."""

log = structlog.get_logger("muster.node")


def run_node(settings: Settings, announce: TextIO | None = None) -> int:
    """Serve until SIGTERM or SIGINT, drain, and return the exit code: 0, 1 (failure) or 5 (port, directory, id in use).

    Once the node answers, `announce` (such as standard output) gets one line, so that a parent process can wait for
    it: {"event": "listening", "host": ..., "port": ..., "pid": ...}, with "kafka_host" and "kafka_port" where Kafka's
    protocol is served, "http_host" and "http_port" where HTTP is. A second signal ends the process at once; the log
    bears that.
    """
    repeats = configure_logs(settings.logging_level, settings.logging_format, node_id=settings.node_id)
    keep_freed_memory(KEPT_BYTES)
    share_arenas()
    sys.setswitchinterval(SWITCH_S)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(serve_until_stopped(settings, announce))
    finally:
        repeats.close()


async def serve_until_stopped(settings: Settings, announce: TextIO | None) -> int:
    stop = asyncio.Event()
    catch_signals(stop)
    node = CoordinatorNode(settings)
    gc.disable()  # What a start makes stays: to look through it again and again finds nothing.
    try:
        await (
            start_unless_stopped(stop, node) if settings.inter_broker_listeners or settings.upstream else node.start()
        )
    except asyncio.CancelledError:
        return EXIT_OK
    except (AddressTaken, BadCertificate, PartitionCountConflict, StorageError, ZooKeeperError) as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_code_of(error)
    log_start(settings)
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_AFTER, OLD_AFTER)
    gc.callbacks.append(SurvivorFreezer())
    gc.enable()
    if announce is not None:
        line = {"event": "listening", "host": node.bound.host, "port": node.bound.port, "pid": os.getpid()}
        if node.kafka_bound is not None:
            line |= {"kafka_host": node.kafka_bound.host, "kafka_port": node.kafka_bound.port}
        if node.http_bound is not None:
            line |= {"http_host": node.http_bound.host, "http_port": node.http_bound.port}
        print(json.dumps(line), file=announce, flush=True)
    node.failed.add_done_callback(lambda _: stop.set())
    await stop.wait()
    await node.stop()
    if not node.failed.done():
        return EXIT_OK
    why = node.failed.result()
    print(f"error: {str(why) or repr(why)}", file=sys.stderr)
    return exit_code_of(why)


async def start_unless_stopped(stop: asyncio.Event, node: CoordinatorNode) -> None:
    """One that is to stop while it waits for others gives up. Raises CancelledError then."""
    starting = asyncio.ensure_future(node.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done() and not node.has_engine:
        starting.cancel()  # Nobody has been answered yet.
    await starting


def catch_signals(stop: asyncio.Event) -> None:
    """The first signal drains; the next one has its default effect."""
    loop = asyncio.get_running_loop()

    def first(number: signal.Signals) -> None:
        log.info("signal", name=number.name)
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, first, number)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed; None stands for asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def exit_code_of(error: BaseException) -> int:
    return EXIT_CONFLICT if is_conflict(error) else EXIT_FAILURE


def is_conflict(error: BaseException) -> bool:
    """Another process holds what this one needs."""
    return isinstance(error, AddressTaken | NodeIdTaken | NodeIdInUse | ForeignTopics) or (
        isinstance(error, DataDirectoryError) and error.holder is not None
    )
