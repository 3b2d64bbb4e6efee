"""Records of `__consumer_offsets` that an operator has given up: the rest is served, what may not fit is mended."""

from collections.abc import Mapping
from pathlib import Path

from muster.coordinator.core.model.events import ConsumerHeartbeat, OffsetCommit, Request, TopicsChanged
from muster.coordinator.core.model.records import LossMended
from muster.coordinator.core.model.types import Cause, CommittedOffset, Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.kafka_records import decode_group, encode
from muster.coordinator.runtime.shards import ShardStatus
from muster.storage.broker.broker import Broker
from muster.storage.files import RealFiles
from muster.storage.records.scan import walk_headers
from muster.storage.tools.repair import recover_dir

TOPIC_ID = b"t" * 16
PATIENT = Limits()


class Life:
    """One start of the only shard, on what lies on disk."""

    def __init__(self, data: Path) -> None:
        self.broker = Broker(data)
        self.log = BrokerGroupLog(self.broker, 1, 1 << 20)
        self.told: list[str] = []
        self.engine = Engine(
            self.log, 1, PATIENT, options=EngineOptions(on_status=lambda shard, status, why: self.told.append(why))
        )
        self.engine.submit(0, TopicsChanged({"t": 2}, ids={"t": TOPIC_ID}))
        self.engine.load(0)
        self.turn()

    def turn(self, *requests: Request) -> None:
        """One batch of the log."""
        for request in requests:
            assert self.engine.submit(0, request)
        self.engine.turn(0)
        if job := self.engine.flush_job():
            job.run()
            self.engine.flushed(job, 0)

    @property
    def shard(self) -> Shard:
        core = self.engine.core(0)
        assert isinstance(core, Shard)
        return core

    def position(self, group: str) -> Mapping[tuple[str, int], int]:
        return {place: value.offset for place, value in self.shard.state.offsets.get(group, {}).items()}

    def end(self) -> None:
        self.broker.close()


def join(number: int, member: str) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        number, "planned", member, 0, rebalance_timeout_ms=1_000, topic_names=("t",), owned={}, client_id=member
    )


def commit(number: int, group: str, offset: int) -> OffsetCommit:
    return OffsetCommit(number, group, "", None, -1, {("t", 0): CommittedOffset(offset, -1, "")})


def damaged(data: Path, group: str) -> None:
    """Flip a bit in the last batch that names the group."""
    path = next((data / "__consumer_offsets-0").glob("*.log"))
    file = RealFiles().open(str(path))
    raw = bytearray(path.read_bytes())
    heads = list(walk_headers(file, 0, len(raw)))
    file.close()
    one = next(head for head in reversed(heads) if group.encode() in raw[head.position : head.end])
    raw[one.end - 1] ^= 1
    path.write_bytes(raw)


def test_what_was_given_up_costs_its_groups_only_and_is_mended_and_told_once(tmp_path: Path) -> None:
    life = Life(tmp_path / "data")
    life.turn(commit(1, "early", 10), join(2, "a"))
    life.turn(commit(3, "hit", 20), join(4, "b"))
    life.turn(commit(5, "late", 30))
    life.end()
    damaged(tmp_path / "data", "hit")

    life = Life(tmp_path / "data")
    assert life.engine.status(0) is ShardStatus.FAILED
    assert "00000000000000000000.log is damaged at byte" in life.told[-1]
    assert "'muster log recover'" in life.told[-1]
    life.end()
    (cut,) = recover_dir(str(tmp_path / "data"), dry_run=False)

    life = Life(tmp_path / "data")
    assert life.engine.status(0) is ShardStatus.ACTIVE
    assert [life.position(group) for group in ("early", "hit", "late")] == [{("t", 0): 10}, {}, {("t", 0): 30}]
    assert f"offset {cut.first_offset}: the records up to offset" in life.told[-1]
    assert life.shard.consumer_groups["planned"].members == {}
    newest = life.shard.ledgers["planned"].newest
    assert newest is not None
    assert newest.cause is Cause.MEMBER_FENCED
    life.turn(join(6, "a"))
    life.end()

    life = Life(tmp_path / "data")
    assert life.engine.report(0).malformed == 0
    assert set(life.shard.consumer_groups["planned"].members) == {"a"}
    life.end()


def test_the_fact_has_a_record() -> None:
    (stored,) = encode([LossMended(17)]).groups
    assert decode_group(stored) == LossMended(17)
    assert decode_group(stored._replace(value=None)) == LossMended(0)
