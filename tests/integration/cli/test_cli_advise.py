"""`muster advise` against a real node: a group with a member that comes and goes, and one that is well."""

import json
from collections.abc import Iterator

import pytest

from muster.client import Admin
from tests.integration.cli.test_cli_doctor import Driver, consumer
from tests.integration.cli.test_cli_node import Prompt
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("advise") / "data") as running:
        yield running


@pytest.fixture
def muster(node: NodeProcess) -> Prompt:
    return Prompt(node.address)


def test_a_group_that_is_well_gets_none(muster: Prompt, node: NodeProcess) -> None:
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("well", 2)
    with consumer(node, "well", "reader") as reader:
        reader.subscribe("well")
        while not reader.assignment():
            reader.poll(0.05)
        done = muster("advise", "well")
    assert done.code == 0, done.err
    assert done.out.startswith("well  Nothing to change: 1 rebalance in 1 minute (1 start).")


def test_a_group_that_is_not_there_is_an_error(muster: Prompt) -> None:
    done = muster("advise", "nobody")
    assert done.code == 3
    assert "there is no group 'nobody'" in done.err


def test_a_member_that_restarts_again_and_again_is_named(muster: Prompt, node: NodeProcess) -> None:
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("sick", 6)
    driver = Driver()
    with consumer(node, "sick", "worker") as worker:
        worker.subscribe("sick")
        driver.drive(worker)
        try:
            for _ in range(5):
                with consumer(node, "sick", "flapper") as flapper:
                    flapper.subscribe("sick")
                    while not flapper.assignment():
                        assert driver.goes_on()
                        flapper.poll(0.05)
            told = json.loads(muster("advise", "sick", "-o", "json").out)
            done = muster("advise", "sick")
        finally:
            driver.end()
    (group,) = told
    advice = {each["kind"]: each for each in group["advice"]}
    assert advice["flapping-member"]["sentence"].startswith("flapper at 127.0.0.1 restarted 4 times")
    assert group["not_judged"] == []
    assert done.code == 6
    assert muster("advise", "sick", "--exit-zero").code == 0
    rows = muster("advise", "sick", "-o", "csv").out.splitlines()
    assert rows[0] == "group,kind,share,partition_seconds,moves,rebalances,sentence,settings,how,proof"
