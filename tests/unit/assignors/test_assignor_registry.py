"""One word, one assignor; an unknown word says what is known."""

import pytest

from muster.assignors import registry
from muster.assignors.api import AssignorError, RebalanceProtocol
from muster.assignors.registry import UnknownAssignor, known, resolve, resolve_all
from muster.assignors.tools import catalog


class Mine:
    name = "mine"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot):
        return {}


class NotOne:
    name = "not-one"


class Fussy(Mine):
    def __init__(self, needed):
        self.needed = needed


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("range", "range"),
        ("RANGE", "range"),
        ("org.apache.kafka.clients.consumer.RangeAssignor", "range"),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "cooperative-sticky"),
        ("ORG.APACHE.KAFKA.clients.consumer.stickyassignor", "sticky"),
        ("org.apache.kafka.coordinator.group.assignor.UniformAssignor", "uniform"),
        ("com.github.grantneale.kafka.LagBasedPartitionAssignor", "lag"),
        ("RoundRobinAssigner", "roundrobin"),
        ("rangeassignor", "range"),
        (" lag ", "lag"),
        ("lag-sticky", "lag-sticky"),
        ("roundrobin-legacy", "roundrobin-legacy"),
    ],
)
def test_words_people_use(word, name):
    assert resolve(word).name == name


def test_every_known_word_resolves_to_its_own_name():
    assert [resolve(word).name for word in registry.BUILT_IN] == list(registry.BUILT_IN)
    assert known()[: len(registry.BUILT_IN)] == list(registry.BUILT_IN)


def test_a_class_path_is_resolved():
    assert resolve(f"{__name__}:Mine").name == "mine"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("rnge", r"'rnge': is not known; known here: range, .*did you mean 'range'"),
        ("", "is not known"),
        ("no.such.module:Class", "cannot be imported"),
        (f"{__name__}:Missing", "names no class"),
        (":Class", "cannot be imported"),
    ],
)
def test_unknown_words_list_what_is_known(word, reason):
    with pytest.raises(UnknownAssignor, match=reason):
        resolve(word)


def test_classes_that_are_no_assignors_are_refused():
    with pytest.raises(AssignorError, match="is not an assignor"):
        resolve(f"{__name__}:NotOne")
    with pytest.raises(AssignorError, match="without arguments"):
        resolve(f"{__name__}:Fussy")


def test_lists_and_comma_strings_keep_their_order_and_drop_repeats():
    assert [a.name for a in resolve_all("range, RangeAssignor ,sticky")] == ["range", "sticky"]
    assert [a.name for a in resolve_all(["sticky", "range"])] == ["sticky", "range"]
    with pytest.raises(ValueError, match="empty list"):
        resolve_all(" , ")


def test_an_installed_plugin_is_found_by_its_entry_point(monkeypatch):
    from importlib.metadata import EntryPoint

    point = EntryPoint("mine", f"{__name__}:Mine", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    assert resolve("mine").name == "mine"
    assert known()[-1] == "mine"
    shown = catalog.describe_assignor("mine")
    assert (shown.source, shown.problem) == (f"{__name__}:Mine", "")


def test_what_is_installed_is_read_once_for_each_search_path(monkeypatch, tmp_path):
    reads = []
    monkeypatch.setattr(registry, "entry_points", lambda group: reads.append(group) or [])
    for word in ("nonsense", "more nonsense"):
        with pytest.raises(registry.UnknownAssignor):
            resolve(word)
    assert len(reads) == 1
    monkeypatch.syspath_prepend(str(tmp_path))
    known()
    assert len(reads) == 2


def test_a_broken_plugin_is_listed_with_its_problem(monkeypatch):
    from importlib.metadata import EntryPoint

    point = EntryPoint("broken", "no.such.module:Class", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    assert "cannot be imported" in catalog.list_assignors()[-1].problem


def test_the_listing_says_what_each_is_for():
    entries = {entry.name: entry for entry in catalog.list_assignors()}
    assert list(entries)[: len(registry.BUILT_IN)] == list(registry.BUILT_IN)
    for entry in entries.values():
        assert entry.summary.endswith(".") or entry.summary.endswith(":"), entry
        assert ">>>" not in entry.description
    assert entries["uniform"].options
    assert "rangeassignor" in entries["range"].aliases
    assert (entries["sticky"].protocol, entries["uniform"].protocol) == ("eager", "cooperative")
