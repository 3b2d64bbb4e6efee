"""What changed since a mark: named as long as it is remembered, never passed over."""

from muster.coordinator.observability.history import group_changes as room
from muster.coordinator.observability.history.group_changes import GroupChanges


def test_each_group_is_named_once_the_latest_first() -> None:
    changes = GroupChanges("a")
    before = changes.mark()
    for group in ("x", "y", "x"):
        changes.note(group)
    news = changes.since(before)
    assert (list(news.groups), news.all_known, news.mark) == (["x", "y"], True, changes.mark())
    assert not changes.since(news.mark)


def test_who_follows_some_groups_hears_of_no_other() -> None:
    changes = GroupChanges("a")
    before = changes.mark()
    changes.note("x")
    assert not changes.since(before, {"y"})
    changes.note("y")
    assert list(changes.since(before, {"y", "z"}).groups) == ["y"]


def test_a_mark_of_another_life_or_of_nobody_means_that_anything_may_have_changed() -> None:
    changes = GroupChanges("a")
    for mark in ("b-0", "", "a", "a-1", "a--1", "a-x", "a-٣"):
        for news in (changes.since(mark), changes.since(mark, {"x"})):
            assert news
            assert not news.all_known


def test_what_is_forgotten_is_said_to_be_unknown() -> None:
    changes = GroupChanges("a")
    before = changes.mark()
    for number in range(room.MOST_GROUPS + 1):
        changes.note(f"g{number}")
    news = changes.since(before)
    assert (len(news.groups), news.all_known) == (room.MOST_NAMES, False)
    assert not changes.since(before, {"g0"}).all_known
    assert changes.since(changes.mark(), {"g0"}).all_known


def test_listeners_hear_of_each_change_and_of_the_end() -> None:
    heard: list[bool] = []
    changes = GroupChanges("a")
    changes.on_change(lambda: heard.append(changes.closed))
    changes.note("x")
    changes.close()
    assert heard == [False, True]


def test_a_group_that_goes_on_changing_is_looked_at_again_until_it_rests() -> None:
    changes = GroupChanges("a")
    changes.note("x", restless=True)
    changes.note("x")
    seen = changes.mark()
    changes.note_restless()
    assert list(changes.since(seen).groups) == ["x"]
    changes.note("x", restless=False)
    seen = changes.mark()
    changes.note_restless()
    assert not changes.since(seen)
