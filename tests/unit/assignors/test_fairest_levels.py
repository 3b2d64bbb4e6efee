"""The fairest loads, and flows at least cost, on networks small enough to check by hand."""

from muster.assignors.builtin.exact_balance import UNLIMITED, CarryingTask, LoadLevel, Network, find_fairest_levels


def levels(supplies, takers, sizes):
    found, flows = find_fairest_levels(CarryingTask(supplies, takers, sizes, [{} for _ in supplies]))
    for supply, open_to, flow in zip(supplies, takers, flows, strict=True):
        assert sum(flow.values()) == supply
        assert set(flow) <= set(open_to)
    return sorted(found, key=lambda level: level.groups)


def test_one_level_when_all_can_be_even():
    assert levels([5], [[0, 1]], [1, 2]) == [LoadLevel((0, 1), 1, 2)]


def test_a_crowded_pool_is_a_level_of_its_own():
    assert levels([9, 1], [[0], [0, 1]], [1, 1]) == [LoadLevel((0,), 9, 0), LoadLevel((1,), 1, 0)]


def test_a_group_that_nothing_reaches_carries_nothing():
    assert levels([4], [[0]], [2, 1]) == [LoadLevel((0,), 2, 0), LoadLevel((1,), 0, 0)]


def test_a_level_holds_all_that_differ_by_one_at_most():
    assert levels([3, 2, 1], [[0], [0, 1], [1, 2]], [1, 1, 1]) == [LoadLevel((0, 1), 2, 1), LoadLevel((2,), 1, 0)]


def test_where_units_lie_does_not_change_the_levels():
    plain, _ = find_fairest_levels(CarryingTask([6, 6], [[0, 1], [1, 2]], [1, 1, 1], [{}, {}]))
    lying, flows = find_fairest_levels(CarryingTask([6, 6], [[0, 1], [1, 2]], [1, 1, 1], [{1: 6}, {1: 4, 2: 2}]))
    assert plain == lying == [LoadLevel((0, 1, 2), 4, 0)]
    assert [sum(flow.get(group, 0) for flow in flows) for group in range(3)] == [4, 4, 4]


def test_flow_takes_the_cheap_way_first_and_undoes_what_stands_in_the_way():
    net = Network(4)
    first = net.add(net.source, 0, 1), net.add(net.source, 1, 1)
    near = net.add(0, 2, 1, 0)
    far = net.add(0, 3, 1, 5)
    only = net.add(1, 2, 1, 0)
    ends = net.add(2, net.sink, 1), net.add(3, net.sink, UNLIMITED)
    net.run()
    assert [net.flow(arc) for arc in (*first, near, far, only, *ends)] == [1, 1, 0, 1, 1, 1, 1]
