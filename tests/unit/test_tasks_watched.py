"""No task and no thread of the product is unwatched: what is begun outside the toolboxes is named here, and why."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("assignors", "cli", "client", "coordinator", "spark", "storage")
TOOLBOXES = {"coordinator/edge/background_tasks.py", "client/twins.py"}
BEGIN = {"create_task", "ensure_future", "run_coroutine_threadsafe", "Thread"}

ANSWERED: Final = "a request's own: its failure is the request's answer, and in the log"
WATCHED: Final = "its owner adds the callback that hears of its end"
THREAD: Final = "a thread that catches whatever one piece of its work raises"
CALLER: Final = "a thread whose result, or failure, goes to whoever waits for it"
COMMAND: Final = "of a command, which ends with it"

NAMED: Final = {
    "assignors/plugin_pool.py:run_in_thread": CALLER,
    "cli/common/commands.py:stop_with_stdin": COMMAND,
    "cli/demo/cluster_demo.py:__init__": COMMAND,
    "cli/demo/kafka_backend_demo.py:__init__": COMMAND,
    "cli/demo/watch_demo.py:written": COMMAND,
    "client/membership/leader_planner.py:_aside": CALLER,
    "client/records/fetcher.py:__init__": WATCHED,
    "client/records/kafka_records.py:__init__": WATCHED,
    "coordinator/edge/tls_flow_control.py:_begin_handshake": WATCHED,
    "coordinator/kafka/connections/connection.py:_answer": ANSWERED,
    "coordinator/kafka/connections/connection.py:_start": ANSWERED,
    "coordinator/kafka/connections/sasl_login.py:_hear": ANSWERED,
    "coordinator/kafka/handlers/transaction_markers.py:begin": ANSWERED,
    "coordinator/kafka_backend/proxy/client_connection.py:_several": ANSWERED,
    "coordinator/observability/tracing/export.py:__init__": THREAD,
    "coordinator/observability/tracing/export.py:close": THREAD,
    "coordinator/replication/io/replica_logs.py:start": THREAD,
    "coordinator/replication/io/wire/node_listener.py:fetch_now": ANSWERED,
    "coordinator/server/driver/driver.py:__init__": THREAD,
    "coordinator/server/driver/driver.py:_in_thread": CALLER,
    "coordinator/server/services/assignment_simulation.py:run_in_daemon_thread": CALLER,
    "coordinator/server/services/member_session.py:_listen": ANSWERED,
    "coordinator/server/services/shared_session.py:_hear": ANSWERED,
    "spark/offset_commits.py:__init__": THREAD,
}


def name_of(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def begins(node: ast.AST) -> bool:
    """Whether a task or a thread is begun within it, other than in a group of tasks that is waited for."""
    return any(
        isinstance(call, ast.Call) and name_of(call.func) in BEGIN and ast.unparse(call.func) != "tasks.create_task"
        for call in ast.walk(node)
    )


def names_in(node: ast.AST) -> set[str]:
    return {name_of(each) for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)}


def waits_itself(function: ast.AsyncFunctionDef | ast.FunctionDef) -> bool:
    """Whether what it begins is bound to names all of which it awaits, or is asked for its result at once."""
    nodes = list(ast.walk(function))
    awaited = set().union(*(names_in(node.value) for node in nodes if isinstance(node, ast.Await)))
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(name_of(target) in awaited for target in targets):
                awaited |= names_in(node.value)
    for node in nodes:
        if isinstance(node, ast.Assign) and begins(node.value):
            if not any(name_of(target) in awaited for target in node.targets):
                return False
        elif isinstance(node, ast.Expr) and begins(node.value):
            if not (isinstance(node.value, ast.Call) and name_of(node.value.func) == "result"):
                return False
        elif isinstance(node, ast.Return) and node.value is not None and begins(node.value):
            return False
    return True


def unwatched(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and begins(node) and not waits_itself(node):
            yield node.name


@pytest.fixture(scope="module")
def found() -> set[str]:
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    places = {str(path.relative_to(ROOT)): path for path in paths}
    texts = {place: path.read_text() for place, path in places.items() if place not in TOOLBOXES}
    return {
        f"{place}:{name}"
        for place, text in texts.items()
        if any(word in text for word in BEGIN)
        for name in unwatched(ast.parse(text))
    }


def test_every_task_is_watched_or_awaited_where_it_was_begun(found: set[str]) -> None:
    assert sorted(found - NAMED.keys()) == [], "begin it by a toolbox: edge/background_tasks.py, or client/twins.py"


def test_no_exception_is_left_that_nobody_needs(found: set[str]) -> None:
    assert sorted(NAMED.keys() - found) == []
