"""Processes that are forked beside open clients: each works, or says at once what to do."""

import json
import subprocess
import sys

import pytest

from muster.client import Admin
from tests.support.node import NodeProcess
from tests.support.pace import pace

pytestmark = pytest.mark.integration

PATIENCE_S = 20
SCRIPT = """
import json, os, signal, sys
from multiprocessing import get_context
from muster import Admin, Consumer, Producer
from muster.client.errors import WrongProcess

servers, topic = sys.argv[1:3]
ANSWERS = {0: "works", 3: "says so"}

def producer():
    made = Producer(bootstrap_servers=servers)
    made.produce(topic, "record")
    made.flush()
    return made

def consumer():
    made = Consumer({"bootstrap.servers": servers, "group.id": f"g-{os.getpid()}"})
    made.subscribe(topic)
    made.poll(0.2)
    return made

def admin():
    made = Admin(bootstrap_servers=servers)
    made.list_topics()
    return made

MAKE = {"producer": producer, "consumer": consumer, "admin": admin}
USE = {
    "produce": lambda client: client.produce(topic, "record"),
    "flush": lambda client: client.flush(),
    "producer.poll": lambda client: client.poll(0.2),
    "producer.close": lambda client: client.close(),
    "consumer.poll": lambda client: client.poll(0.2),
    "list_topics": lambda client: client.list_topics(),
}

def ends(work):
    try:
        work()
    except WrongProcess as error:
        assert "gRPC does not survive a fork: open clients after it" in str(error), error
        os._exit(3)
    os._exit(0)

def forked(work):
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE_S)
        ends(work)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return ANSWERS.get(code, code)

def started(how):
    child = get_context(how).Process(target=ends, args=(producer,))
    child.start()
    child.join(PATIENCE_S)
    child.kill()
    return ANSWERS.get(child.exitcode, child.exitcode)

if __name__ == "__main__":
    found = {"no client yet": forked(producer)}
    producer().close()
    found["closed before"] = forked(producer)
    for name, make in MAKE.items():
        with make() as client:
            for verb, use in USE.items():
                if verb in dir(client) or verb.partition(".")[0] == name:
                    found[f"{name}: its {verb}"] = forked(lambda: use(client))
            for other in MAKE:
                found[f"{name} open: a new {other}"] = forked(MAKE[other])
            for how in ("fork", "forkserver", "spawn"):
                found[f"{name} open: {how}"] = started(how)
            USE["list_topics"](client) if name == "admin" else client.poll(0)  # the parent goes on
    print(json.dumps(found))
"""


def test_the_child_of_a_process_with_clients_works_or_says_so_at_once(node: NodeProcess, tmp_path: object) -> None:
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("forked", 1)
    script = f"PATIENCE_S = {round(PATIENCE_S * pace())}\n{SCRIPT}"
    place = f"{tmp_path}/forks.py"
    with open(place, "w", encoding="utf-8") as file:
        file.write(script)
    done = subprocess.run([sys.executable, place, node.address, "forked"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    works = {case for case, how in found.items() if how == "works"}
    assert works == {"no client yet", "closed before"} | {
        f"{name} open: {how}" for name in ("producer", "consumer", "admin") for how in ("forkserver", "spawn")
    }
    assert {how for case, how in found.items() if case not in works} == {"says so"}
    assert len(found) == 28
