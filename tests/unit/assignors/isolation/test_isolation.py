"""Plugins in processes of their own: what they do to themselves is told, and done to nobody else."""

import inspect
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from muster.assignors.api import Assignment, Assignor, AssignorError, Member, RebalanceProtocol, Snapshot
from muster.assignors.plugin_pool import Isolation, IsolationLimits
from muster.assignors.plugin_process import PluginOverran
from muster.assignors.registry import resolve
from muster.assignors.run import run
from tests.support import plugins

GROUP = Snapshot(
    {"t": 5, "u": 2},
    [Member("a", ("t", "u"), {"t": [0, 1, 9]}, 3), Member("b", ("t",), {"t": [2]}, 3, rack="r1")],
    lags={"t": [5, 4, 3, 2, 1]},
    racks={"t": [["r1"]] * 5},
    options={"deep": {"er": [1, 2.5, None]}},
)
SHORT_MS, LONG_MS = 300, 60_000
MEMORY = 128 << 20


@pytest.fixture
def isolation() -> Iterator[Isolation]:
    made = Isolation(IsolationLimits(max_memory_bytes=MEMORY))
    yield made
    made.close()


@pytest.mark.parametrize("kind", plugins.NASTY, ids=lambda kind: kind.name)
def test_a_plugin_costs_its_caller_one_plan(isolation: Isolation, kind: type[Assignor]) -> None:
    endless = plugins.NASTY[kind] == "was not done after"
    with pytest.raises(AssignorError, match=plugins.NASTY[kind]):
        isolation.run(kind(), GROUP, SHORT_MS if endless else LONG_MS)
    assert isolation.run(plugins.Deals(), GROUP, LONG_MS) == run(plugins.Deals(), GROUP)


def line_of(kind: type[Assignor], words: str) -> int:
    lines, first = inspect.getsourcelines(kind)
    return first + next(number for number, line in enumerate(lines) if words in line)


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_the_error_of_a_plugin_says_where_it_is(mode: Literal["process", "thread"]) -> None:
    """What raised, what looped, and what gave a plan that is none; with a traceback where there is one."""
    isolation = Isolation(IsolationLimits(mode=mode))
    for kind, words, traced in (
        (plugins.Raises, "raise ZeroDivisionError", True),
        (plugins.Loops, "pass", False),
        (plugins.Forgets, "def assign", False),
    ):
        with pytest.raises(AssignorError) as caught:
            isolation.run(kind(), GROUP, SHORT_MS if kind is plugins.Loops else LONG_MS)
        lines = {line_of(kind, words), line_of(kind, "while" if kind is plugins.Loops else words)}
        assert any(f"{plugins.__file__}, line {line}" in str(caught.value) for line in lines), str(caught.value)
        assert ("out of cheese" in caught.value.trace) is traced
    isolation.close()


@pytest.mark.parametrize("kind", [plugins.Prints, plugins.Twins])
def test_what_harms_nobody_is_a_plan(
    isolation: Isolation, kind: type[Assignor], capfd: pytest.CaptureFixture[str]
) -> None:
    assert isolation.run(kind(), GROUP, LONG_MS) == run(plugins.Deals(), GROUP)
    assert capfd.readouterr() == ("", "")


def test_the_author_of_a_plugin_sees_what_it_prints(capfd: pytest.CaptureFixture[str]) -> None:
    isolation = Isolation(IsolationLimits(show_output=True))
    isolation.run(plugins.Prints(), GROUP, LONG_MS)
    isolation.close()
    out, err = capfd.readouterr()
    assert (out, err.count("spam ")) == ("", 600_000)


def test_a_process_is_kept_for_the_next_plan_and_replaced_once_it_failed(isolation: Isolation) -> None:
    first, second = (isolation.run(plugins.Remembers(), GROUP, LONG_MS).note for _ in range(2))
    assert first == second != str(os.getpid())
    with pytest.raises(PluginOverran):
        isolation.run(plugins.Hangs(), GROUP, SHORT_MS)
    with pytest.raises(AssignorError, match="exit code 3"):
        isolation.run(plugins.Exits(), GROUP, LONG_MS)
    assert isolation.run(plugins.Remembers(), GROUP, LONG_MS).note == first


def test_an_idle_plugin_makes_room_for_another_one() -> None:
    isolation = Isolation(IsolationLimits(max_processes=1))
    first = isolation.run(plugins.Remembers(), GROUP, LONG_MS).note
    isolation.run(plugins.Deals(), GROUP, LONG_MS)
    assert gone(int(first))
    assert isolation.run(plugins.Remembers(), GROUP, LONG_MS).note != first
    isolation.close()


def test_no_more_processes_than_allowed_and_whoever_waits_in_vain_is_told() -> None:
    isolation = Isolation(IsolationLimits(max_processes=1))
    pid = int(isolation.run(plugins.Remembers(), GROUP, LONG_MS).note)
    busy: list[AssignorError] = []

    def hang() -> None:
        try:
            isolation.run(plugins.Hangs(), GROUP, LONG_MS)
        except AssignorError as error:
            busy.append(error)

    thread = threading.Thread(target=hang)
    thread.start()
    assert gone(pid), "the idle one made room for it"
    with pytest.raises(AssignorError, match=r"found no place within 300 ms.*group\.assignor\.max\.processes"):
        isolation.run(plugins.Deals(), GROUP, SHORT_MS)
    isolation.close()
    thread.join()
    assert "ended its process" in str(busy[0]) or "shutting down" in str(busy[0])
    with pytest.raises(AssignorError, match="shutting down"):
        isolation.run(plugins.Deals(), GROUP, LONG_MS)


def test_a_plugin_sees_what_the_caller_has(isolation: Isolation) -> None:
    text = isolation.run(Echoes(), GROUP, LONG_MS).note
    kept = replace(GROUP, members=[replace(GROUP.members[0], owned={"t": [0, 1]}), GROUP.members[1]])
    assert text == kept.to_json(), "a claim to a partition that does not exist is not shown"


def test_large_plans_of_both_forms(isolation: Isolation) -> None:
    members = [Member(f"m{number}", ("t",)) for number in range(7)]
    large = Snapshot({"t": 200_000}, members)
    for assignor in (plugins.Deals(), Columns()):
        plan = isolation.run(assignor, large, LONG_MS)
        assert plan.members == run(assignor, large).members
        held = [Member(member.id, ("t",), plan.members[member.id], 1) for member in members]
        again = replace(large, members=held)
        assert isolation.run(assignor, again, LONG_MS).members == run(assignor, again).members


def test_what_no_other_process_could_make_is_refused(isolation: Isolation) -> None:
    class Local(plugins.Deals):
        name = "local"

    for assignor in (Local(), plugins.Starves()):
        with pytest.raises(AssignorError, match=r"cannot be run in a process of its own.*top of a module"):
            isolation.run(assignor, GROUP, LONG_MS)


def test_a_plugin_that_cannot_be_loaded_says_why(isolation: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    fragile = plugins.Deals()
    monkeypatch.setattr(type(fragile), "__module__", "tests.support.nowhere", raising=False)
    monkeypatch.setitem(sys.modules, "tests.support.nowhere", plugins)
    with pytest.raises(AssignorError, match=r"cannot be loaded.*No module named 'tests.support.nowhere'"):
        isolation.run(fragile, GROUP, LONG_MS)


def test_ours_need_no_process(isolation: Isolation) -> None:
    assert isolation.run(resolve("range"), GROUP, 1) == run(resolve("range"), GROUP)
    assert not isolation._processes


def test_in_a_thread_a_deadline_is_the_end_of_patience() -> None:
    isolation = Isolation(IsolationLimits(mode="thread"))
    assert isolation.run(plugins.Remembers(), GROUP, LONG_MS).note == str(os.getpid())
    with pytest.raises(PluginOverran, match="not done after 300 ms"):
        isolation.run(plugins.Hangs(), GROUP, SHORT_MS)


@pytest.mark.parametrize("kind", ["Counts", "Hangs"])
def test_nothing_outlives_its_caller(kind: str) -> None:
    """The caller is killed, as nobody can prepare for, while its plugin is in the middle of a plan."""
    program = (
        "import threading\n"
        "from muster.assignors.api import Member, Snapshot\n"
        "from muster.assignors.plugin_pool import Isolation\n"
        "from tests.support import plugins\n"
        "isolation, group = Isolation(), Snapshot({'t': 1}, [Member('a', ('t',))])\n"
        "pid = isolation.run(plugins.Remembers(), group, 60000).note\n"
        f"threading.Thread(target=isolation.run, args=(plugins.{kind}(), group, 600000), daemon=True).start()\n"
        "while len(isolation._processes) < 2: pass\n"
        "print(*[process.pid for process in isolation._processes], flush=True)\n"
        "threading.Event().wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        watched = [os.pidfd_open(int(pid)) for pid in caller.stdout.readline().split()]
        caller.kill()
    assert len(watched) == 2
    for descriptor in watched:
        assert select.select([descriptor], [], [], 30)[0], "the process lives on"
        os.close(descriptor)


class Echoes(plugins.Deals):
    name = "echoes"

    def assign(self, snapshot: Snapshot) -> Assignment:  # type: ignore[override]
        return Assignment(super().assign(snapshot), note=snapshot.to_json())


class Columns:
    """Works on arrays, as the large ones of ours do."""

    name = "columns"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> Assignment:
        columns = snapshot.columns
        owner = np.arange(columns.axis.size, dtype=np.int32) % len(columns.members)
        return Assignment(columns.table(owner.astype(np.int32)))


def gone(pid: int) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ready = bool(select.select([descriptor], [], [], 30)[0])
    os.close(descriptor)
    return ready


def test_a_list_of_members_stands_for_its_table_as_long_as_nobody_changes_it() -> None:
    from dataclasses import replace

    from muster.assignors.api import Member, Snapshot
    from muster.assignors.data.columns import MemberList, table_of

    plain = Snapshot({"t": 4, "u": 2}, [Member("b", ("t",), {"t": [0, 1]}, 3), Member("a", ("t", "u"))])
    listed = MemberList(table_of(plain))
    same = replace(plain, members=listed)
    assert isinstance(same.members, list)
    assert list(same.columns.members) == list(plain.columns.members)
    assert same.columns.owner.tolist() == plain.columns.owner.tolist()
    assert listed.untouched
    listed[0] = replace(listed[0], topics=("u",), owned=None)
    changed = replace(plain, members=[*listed])
    assert not listed.untouched
    assert replace(plain, members=listed).columns.owner.tolist() == changed.columns.owner.tolist()
