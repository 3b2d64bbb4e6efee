"""Our own assignors pass the suite that plugin authors run, and the suite catches bad ones."""

import pytest

from muster.assignors import compliance, registry
from muster.assignors.api import RebalanceProtocol
from muster.assignors.builtin.range import RangeAssignor
from muster.assignors.compliance import AssignorCompliance, examine
from muster.assignors.tools.catalog import scaffold
from tests.support import plugins


@pytest.fixture(params=list(registry.BUILT_IN), scope="module")
def built_in(request):
    return registry.resolve(request.param)


@pytest.mark.parametrize("large_from", [1, 400])
def test_every_built_in_passes(built_in, large_from, monkeypatch):
    monkeypatch.setattr("muster.assignors.api.FAST_FROM", large_from)
    report = examine(built_in)
    assert report.passed, str(report)
    assert len(report.findings) == len(compliance.CHECKS) * len(compliance.groups())


class TestThreeLines(AssignorCompliance):
    assignor = RangeAssignor()


class Forgetful:
    name = "forgetful"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot):
        return {}


class Moody:
    name = "moody"
    protocol = RebalanceProtocol.EAGER
    calls = 0

    def assign(self, snapshot):
        Moody.calls += 1
        takers = {topic: snapshot.subscribers(topic) for topic in snapshot.subscribed_topics()}
        plan = {}
        for topic, partition in snapshot:
            taker = takers[topic][(partition + Moody.calls) % len(takers[topic])]
            plan.setdefault(taker, {}).setdefault(topic, []).append(partition)
        return plan


class Restless(Moody):
    name = "restless"
    protocol = RebalanceProtocol.COOPERATIVE


def test_a_forgetful_assignor_is_told_what_it_forgot():
    report = examine(Forgetful())
    assert not report.passed
    assert "valid [alone]: assignor 'forgetful': forgot t-0, t-1" in str(report)


def test_a_moody_assignor_is_caught():
    assert {finding.check for finding in examine(Moody()).failures()} >= {"repeatable", "order-blind"}


def test_a_cooperative_assignor_that_never_settles_is_caught():
    assert "converges" in {finding.check for finding in examine(Restless()).failures()}


def test_the_class_form_fails_with_the_group_that_broke_it():
    class Bad(AssignorCompliance):
        assignor = Forgetful()

    with pytest.raises(AssertionError, match=r"forgetful \[empty topic\].*forgot u-0"):
        Bad().test_gives_each_partition_to_one_subscriber()


def test_a_new_plugin_passes_its_own_test(tmp_path, monkeypatch):
    files = scaffold("my-own")
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert examine(registry.resolve("my_own:MyOwnAssignor")).passed
    assert 'my-own = "my_own:MyOwnAssignor"' in files["pyproject.toml"]
    test = {}
    exec(compile(files["test_my_own.py"], "test_my_own.py", "exec"), test)
    test["test_deals_in_turn"]()
    test["TestMyOwnAssignor"]().test_answers_the_same_twice()


@pytest.mark.parametrize("name", ["", "Mine", "my own", "-x", "../x", "x" * 80, "range", "lag-sticky", "class"])
def test_bad_names_for_a_plugin_are_refused(name):
    with pytest.raises(ValueError, match=r"cannot name|is taken|Python's own"):
        scaffold(name)


def test_an_assignor_that_hangs_ends_the_examination_and_not_the_examiner():
    report = examine(plugins.Counts(), deadline_ms=300)
    first, *rest = report.findings
    assert "was not done after 300 ms" in first.problem
    assert {finding.problem for finding in rest} == {f"not tried after [{first.group}] of 'valid'"}


def test_the_class_form_has_a_deadline_too():
    class Bad(AssignorCompliance):
        assignor = plugins.Loops()
        deadline_ms = 300

    with pytest.raises(AssertionError, match="was not done after 300 ms"):
        Bad().test_answers_the_same_twice()


def test_a_class_inside_of_a_function_is_checked_where_it_is():
    class Local(plugins.Deals):
        pass

    with pytest.warns(UserWarning, match="it is checked in this process"):
        assert examine(Local()).passed
