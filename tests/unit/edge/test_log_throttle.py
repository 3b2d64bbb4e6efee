"""What strangers cause is told now and then: how much, however many they are."""

from muster.coordinator.edge.overload import MAX_REASONS, LogThrottle


def test_a_flood_from_ever_new_places_is_told_of_no_more_often_than_there_is_room() -> None:
    seldom = LogThrottle(10)
    told = [seldom.count_suppressed(f"host-{number}", number / 1000) for number in range(5 * MAX_REASONS)]
    assert told.count(0) == MAX_REASONS
    assert seldom.count_suppressed("host-0", 10) == 0, "the first of them has room for another one again"
    assert seldom.count_suppressed("somebody else", 10) is None
    assert seldom.count_suppressed("somebody else", 20) == 0


def test_what_goes_on_and_on_is_told_again_with_how_often_it_happened() -> None:
    seldom = LogThrottle(10)
    assert [seldom.count_suppressed("full", at) for at in range(30)].count(9) == 2


def test_a_flood_that_goes_on_is_told_of_no_more_often_later() -> None:
    seldom = LogThrottle(10)
    for start in (0, 10, 20):
        told = [
            seldom.count_suppressed(f"host-{start}-{number}", start + number / 1000)
            for number in range(5 * MAX_REASONS)
        ]
        assert told.count(0) == MAX_REASONS


def test_one_that_is_told_again_leaves_the_others_room_to_strangers() -> None:
    seldom = LogThrottle(10)
    for number in range(MAX_REASONS):
        seldom.count_suppressed(f"host-{number}", 0)
    assert seldom.count_suppressed("host-0", 10) == 0
    assert seldom.count_suppressed("somebody else", 10) == 0
