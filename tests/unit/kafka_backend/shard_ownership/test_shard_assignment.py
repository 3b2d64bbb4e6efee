"""KB-F1: what nodes say of themselves, what their leader makes of it, and what each gets back."""

import pytest

from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import (
    AssignedNode,
    NodeBid,
    ShardAssignment,
    decode_assignment,
    decode_bid,
    encode_bid,
    joins_again_ms,
    plan_assignment,
)

SHARDS = 50


def dealt(*bids: NodeBid) -> ShardAssignment:
    return decode_assignment(plan_assignment({f"member-{at}": encode_bid(bid) for at, bid in enumerate(bids)}, SHARDS))


def counts(assignment: ShardAssignment) -> dict[int, int]:
    return {node.node: len(node.shards) for node in assignment.nodes.values()}


def test_f1_a_node_says_what_it_is_and_is_read_again() -> None:
    bid = NodeBid(
        2, "a", {"grpc": "host:9290", "kafka": "host:9092"}, (3, 7), draining=True, generation=4, leaving=True
    )
    assert decode_bid(encode_bid(bid)) == bid


def test_f1_everybody_gets_the_whole_map_with_addresses() -> None:
    assignment = dealt(NodeBid(1, "a", {"grpc": "one:9290"}), NodeBid(2, "b", {"grpc": "two:9290"}), NodeBid(3, "c"))
    assert counts(assignment) == {1: 17, 2: 17, 3: 16}
    owner = assignment.owner_of(0)
    assert owner is not None
    assert owner.addresses == {"grpc": f"{'one' if owner.node == 1 else 'two'}:9290"} or owner.node == 3
    assert sorted(shard for node in assignment.nodes.values() for shard in node.shards) == list(range(SHARDS))
    assert assignment.of(1) == set(assignment.nodes[1].shards)
    assert assignment.of(9) == set()


def test_f1_what_moves_is_let_go_of_in_one_round_and_taken_in_the_next() -> None:
    first = dealt(NodeBid(1, "a", owned=tuple(range(SHARDS))), NodeBid(2, "b"))
    assert counts(first) == {1: 25, 2: 0}
    second = dealt(NodeBid(1, "a", owned=first.nodes[1].shards), NodeBid(2, "b"))
    assert counts(second) == {1: 25, 2: 25}
    assert second.nodes[1].shards == first.nodes[1].shards


def test_f1_a_draining_node_gets_nothing_and_what_it_holds_waits_for_it() -> None:
    held = tuple(range(20))
    first = dealt(NodeBid(1, "a", owned=held, draining=True), NodeBid(2, "b", owned=tuple(range(20, SHARDS))))
    assert counts(first) == {1: 0, 2: 30}
    assert first.nodes[1].draining
    assert counts(dealt(NodeBid(1, "a", draining=True), NodeBid(2, "b", owned=first.nodes[2].shards))) == {
        1: 0,
        2: SHARDS,
    }


def test_f1_what_two_claim_is_dealt_to_neither() -> None:
    assignment = dealt(NodeBid(1, "a", owned=(0, 1)), NodeBid(2, "b", owned=(1, 2)))
    assert assignment.owner_of(1) is None
    assert assignment.of(1) >= {0}
    assert assignment.of(2) >= {2}


def test_f1_who_cannot_be_read_gets_nothing_and_all_others_do() -> None:
    members = {"a": encode_bid(NodeBid(1, "a")), "b": b"{", "c": b'{"node":"x"}', "d": b'{"node":1,"instance":"twin"}'}
    assignment = decode_assignment(plan_assignment(members, SHARDS))
    assert counts(assignment) == {1: SHARDS}
    assert assignment.nodes[1].instance == "a"


def test_f1_nobody_who_can_take_anything() -> None:
    assert counts(dealt(NodeBid(1, "a", draining=True, leaving=True))) == {1: 0}
    assert decode_assignment(b"") == ShardAssignment()


def test_f1_a_drained_node_has_what_would_be_nobody_s() -> None:
    """It stays up: groups are better off with it than with none, where those that had them are gone, or going."""
    assert counts(dealt(NodeBid(1, "a", draining=True))) == {1: SHARDS}
    held = tuple(range(SHARDS))
    first = dealt(NodeBid(1, "a", draining=True), NodeBid(2, "b", owned=held, draining=True, leaving=True))
    assert counts(first) == {1: 0, 2: 0}, "what is held is waited for"
    assert counts(dealt(NodeBid(1, "a", draining=True), NodeBid(2, "b", draining=True, leaving=True))) == {
        1: SHARDS,
        2: 0,
    }
    assert counts(dealt(NodeBid(1, "a", owned=held, draining=True), NodeBid(2, "b"))) == {1: 0, 2: 0}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[]", "an object expected"),
        (b"x" * (1 << 21), "at most"),
        (b'{"shards":2,"nodes":[3]}', "nodes holds 3"),
        (b'{"shards":2,"nodes":[{"node":1,"shards":[-1]}]}', r"shards is \[-1\]"),
        (b'{"shards":2,"nodes":[{"node":1,"shards":[1]},{"node":2,"shards":[1]}]}', "gives shard 1 to nodes 1 and 2"),
        (b'{"shards":true,"nodes":[]}', "shards is True"),
        (b'{"shards":1,"nodes":[{"node":1,"addresses":[]}]}', r"addresses is \[\]"),
        (b'{"shards":1,"nodes":5}', "nodes is 5"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_a_map_that_cannot_be_read_says_why(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_assignment(text)


@pytest.mark.parametrize("generation", ["null", "[]", "1e400", "true", '"6"'])
def test_what_a_stranger_says_costs_nobody_else_his_shards(generation: str) -> None:
    """Whoever may join the nodes' group says what he likes there."""
    with pytest.raises(ValueError, match="generation is"):
        decode_bid(b'{"node":1,"generation":%s}' % generation.encode())
    bids = {
        "a": b'{"node":1,"generation":%s}' % generation.encode(),
        "b": b"[" * 100_000,
        "c": encode_bid(NodeBid(2, "i")),
    }
    assert decode_assignment(plan_assignment(bids, 3)).of(2) == {0, 1, 2}


def test_kafka_answers_a_static_member_that_came_back_with_the_map_there_is() -> None:
    bid = NodeBid(1, "new", {"grpc": "new:1"})
    assert joins_again_ms(ShardAssignment(1, {}), bid)
    assert joins_again_ms(ShardAssignment(1, {1: AssignedNode(1, "new", {"grpc": "old:1"})}), bid)
    assert joins_again_ms(ShardAssignment(1, {1: AssignedNode(1, "old", {"grpc": "new:1"})}), bid)
    assert not joins_again_ms(ShardAssignment(1, {1: AssignedNode(1, "new", {"grpc": "new:1"})}), bid)


def test_who_joins_again_says_something_new() -> None:
    assert encode_bid(NodeBid(1, "a", generation=6)) != encode_bid(NodeBid(1, "a"))
