"""`make test` and `make verify` are the whole suite between them, and say what they cover."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import pytest_collection_modifyitems
from tests.parts import PARTS, NoPart, part_of, starts_processes
from tests.support.part_lines import PartLines

ROOT = Path(__file__).parents[2]
PLACES = [place for part in PARTS for place in part.where]


@pytest.mark.parametrize("place", PLACES)
def test_every_place_that_is_named_exists(place: str) -> None:
    file, _, test = place.partition("::")
    assert (ROOT / file).exists()
    assert not test or f"def {test}(" in (ROOT / file).read_text()


def test_no_place_is_named_twice() -> None:
    assert len(set(PLACES)) == len(PLACES)


def test_every_file_of_tests_has_its_part() -> None:
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("tests/scripts/*/*.txt")]
    assert len(files) > 500
    for file in files:
        assert part_of(f"{file.relative_to(ROOT)}::test").covers


def test_a_new_folder_wants_a_part() -> None:
    with pytest.raises(NoPart, match=r"tests/parts\.py"):
        part_of("tests/elsewhere/test_new.py::test_new")


def test_a_test_stands_for_its_parameters_and_for_no_other() -> None:
    file = "tests/integration/cli/test_demo_run.py"
    assert part_of(f"{file}::test_a_worker_is_killed_and_no_line_is_lost[any]").name == "demo"
    assert part_of(f"{file}::test_a_worker_is_killed_and_no_line_is_lost_twice").name == "command line, all"
    assert starts_processes(part_of(f"{file}::any"))


def test_the_two_commands_differ_by_the_mark_and_their_processes_alone() -> None:
    def asked(target: str, *processes: str) -> str:
        command = ["make", "-n", target, *processes]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    four = asked("test", "PROCESSES=4"), asked("verify", "PROCESSES=4")
    assert four[0].replace('-m "not verify"', '-m "verify"') == four[1] != four[0]
    assert asked("test") == four[0].replace("--numprocesses 4", "--numprocesses 2")
    assert 'pytest --parts --numprocesses 3 --no-loadscope-reorder -m "verify" ||' in asked("verify")


class Collected:
    """A test as pytest's hook sees it: its id, and the marks that it is given."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid
        self.marks: set[str] = set()

    def add_marker(self, mark: str) -> None:
        self.marks.add(mark)


def test_the_mark_follows_the_tables_and_the_parts_keep_their_order() -> None:
    tests = [
        Collected("tests/torture/test_soak.py::test_x"),
        Collected("tests/scripts/ledger/explain.txt::explain"),
        Collected("tests/integration/cli/test_cli_node.py::test_x"),
        Collected("tests/integration/cli/test_elsewhere.py::test_x"),
    ]
    pytest_collection_modifyitems(tests)  # type: ignore[arg-type]
    assert [(test.nodeid.split("/")[-1], sorted(test.marks)) for test in tests] == [
        ("test_cli_node.py::test_x", ["integration"]),
        ("explain.txt::explain", []),
        ("test_elsewhere.py::test_x", ["integration", "verify"]),
        ("test_soak.py::test_x", ["integration", "verify"]),
    ]


class Terminal:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def ensure_newline(self) -> None:
        pass

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def ran(lines: PartLines, test: str, outcome: str = "passed", seconds: float = 1.0) -> None:
    for when in ("setup", "call", "teardown"):
        result = outcome if when == "call" else "passed"
        lines.pytest_runtest_logreport(pytest.TestReport(test, ("", 0, ""), {}, result, None, when, duration=seconds))
    lines.pytest_runtest_logfinish(test)


def test_a_part_has_its_line_with_its_last_test() -> None:
    terminal = Terminal()
    lines = PartLines(terminal)
    tests = [f"tests/vectors/log/test_x.py::test_{number}" for number in range(3)]
    for process in ("one", "two"):
        lines.pytest_xdist_node_collection_finished(process, [*tests, "tests/unit/test_a.py::test_b"])
    ran(lines, tests[0])
    ran(lines, tests[1], "failed")
    assert terminal.lines == []
    ran(lines, tests[2], seconds=2.0)
    (told,) = terminal.lines
    assert re.match(r"vectors +2 passed, 1 failed in 12 s: logs and plans", told)
    lines.pytest_terminal_summary()
    assert re.match(r"units +1 not run in 0 s", terminal.lines[1])
