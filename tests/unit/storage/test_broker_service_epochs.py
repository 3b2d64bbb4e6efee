"""What a reader by gRPC may know of leaders and epochs, and what it is told (KIP-320, KIP-595; CL-K2)."""

from typing import Any

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.errors import NotLeaderOrFollower
from muster.storage.logs import replica
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.service.broker_service import BrokerService
from tests.unit.storage.logs import T0, batch
from tests.unit.storage.test_broker_service import fetch, play, produce, results, texts

FENCED, UNKNOWN, OUT_OF_RANGE, NOT_LEADER = 74, 75, 1, 6


def two_epochs(broker: Broker) -> None:
    """t-0: offsets 0 and 1 under epoch 3, offset 2 under epoch 5."""
    replica.start_leading(broker.log("t", 0), 3)
    broker.append("t", 0, batch(b"a", b"b"), T0)
    replica.start_leading(broker.log("t", 0), 5)
    broker.append("t", 0, batch(b"c"), T0)
    broker.flush()


def asking(offset: int, **epochs: int) -> pb.FetchRequest:
    request = pb.FetchRequest(max_wait_ms=600_000, min_bytes=1, max_bytes=1 << 20)
    request.topics.add(topic="t").partitions.add(partition=0, fetch_offset=offset, **epochs)
    return request


@pytest.mark.parametrize(("epoch", "code"), [(4, FENCED), (6, UNKNOWN)])
def test_another_epoch_than_the_leader_s_is_refused_at_once(epoch: int, code: int) -> None:
    """CL-K2. `play` gives it 20 s; the fetch would wait for ten minutes."""

    async def story(service: BrokerService, broker: Broker) -> None:
        two_epochs(broker)
        (refused,) = results(await service.fetch(asking(3, current_leader_epoch=epoch), None))
        assert refused.error_code == code
        assert "leader epoch 5" in refused.error_message

    play(story)


@pytest.mark.parametrize(
    ("offset", "epochs", "read"),
    [
        (0, {}, [b"a", b"b", b"c"]),
        (0, {"current_leader_epoch": -1, "last_fetched_epoch": -1}, [b"a", b"b", b"c"]),
        (2, {"current_leader_epoch": 5, "last_fetched_epoch": 3}, [b"c"]),
    ],
)
def test_who_knows_the_same_or_tells_nothing_reads_on(offset: int, epochs: dict[str, int], read: list[bytes]) -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        two_epochs(broker)
        (found,) = results(await service.fetch(asking(offset, **epochs), None))
        assert texts(found) == read
        assert not found.HasField("diverging_epoch")
        assert not found.HasField("current_leader")

    play(story)


@pytest.mark.parametrize(("offset", "last", "parts"), [(7, 3, (3, 2)), (7, 4, (3, 2)), (9, 5, (5, 3))])
def test_who_has_read_what_is_not_there_is_told_where_to_go_back_to(
    offset: int, last: int, parts: tuple[int, int]
) -> None:
    """KIP-595: the pair of the largest epoch that both know, and no records; at once."""

    async def story(service: BrokerService, broker: Broker) -> None:
        two_epochs(broker)
        (told,) = results(await service.fetch(asking(offset, last_fetched_epoch=last), None))
        assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == parts
        assert (told.error_code, told.records, told.high_watermark) == (0, b"", 3)

    play(story)


def test_an_epoch_that_never_was_leads_nowhere() -> None:
    async def story(service: BrokerService, broker: Broker) -> None:
        two_epochs(broker)
        (told,) = results(await service.fetch(asking(1, last_fetched_epoch=9), None))
        assert told.error_code == OUT_OF_RANGE

    play(story)


def test_refused_places_stay_in_their_places() -> None:
    """One that is refused among others: each answer is about what was asked there."""

    async def story(service: BrokerService, broker: Broker) -> None:
        two_epochs(broker)
        broker.append("t", 1, batch(b"one"), T0)
        broker.append("t", 2, batch(b"two"), T0)
        broker.flush()
        request = fetch(("t", 1, 0), ("t", 0, 0), ("t", 2, 0), wait_ms=600_000, least=1 << 20)
        request.topics[1].partitions[0].current_leader_epoch = 1
        before, refused, after = results(await service.fetch(request, None))
        assert (texts(before), texts(after)) == ([b"one"], [b"two"])
        assert (refused.partition_index, refused.error_code) == (0, FENCED)
        flat = pb.MultiFetchRequest(max_bytes=1 << 20)
        flat.fetches.add(topic="t", partition=0, fetch_offset=9, last_fetched_epoch=3)
        flat.fetches.add(topic="t", partition=1)
        answer = pb.MultiFetchResponse.FromString(await service.multi_fetch(flat, None))
        assert [each.result.diverging_epoch.end_offset for each in answer.results] == [2, 0]
        assert texts(answer.results[1].result) == [b"one"]

    play(story)


@pytest.mark.parametrize("leader", [(7, 12), (-1, 12)])
def test_a_refusal_says_who_leads_where_it_is_known(monkeypatch: pytest.MonkeyPatch, leader: tuple[int, int]) -> None:
    """CL-K2: `current_leader`, of a fetch and of a produce; unset where nobody leads."""

    async def story(service: BrokerService, broker: Broker) -> None:
        def elsewhere(*place: Any) -> None:
            raise NotLeaderOrFollower("Partition t-0 is led elsewhere.", *leader)

        monkeypatch.setattr(broker, "log", elsewhere)
        monkeypatch.setattr(broker, "append", elsewhere)
        monkeypatch.setattr(broker, "append_many", elsewhere, raising=False)
        (fetched,) = results(await service.fetch(fetch(("t", 0, 0)), None))
        answer = await service.produce(produce(("t", 0, batch(b"a"))), None)
        for result in (fetched, answer.responses[0].partition_responses[0]):
            assert result.error_code == NOT_LEADER
            known = (result.current_leader.leader_id, result.current_leader.leader_epoch)
            assert known == (leader if leader[0] >= 0 else (0, 0))
            assert result.HasField("current_leader") is (leader[0] >= 0)

    play(story)
