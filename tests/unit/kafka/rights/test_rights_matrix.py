"""Every API of Kafka's door, in every version: without its right, with it, denied, and by a prefix."""

import asyncio
from itertools import count

import pytest

from muster.coordinator.kafka.authorization.guard import JUDGES
from muster.coordinator.security.access_model import CLUSTER_NAME, Operation
from muster.coordinator.security.rights import ANY_TOPIC, API_RIGHTS, REFUSALS, SAME, RequiredRight, WithoutRight
from tests.support.kafka.asked import Asked
from tests.support.kafka.memory_node import MemoryNode
from tests.support.kafka.rights import (
    ALICE,
    CLUSTER,
    FIELDS,
    GROUP,
    ROOT,
    TOPIC,
    TRANSACTIONAL_ID,
    acl,
    authorizer,
    codes,
    request,
    settle,
    subscribe,
    words,
)
from tests.support.kafka.rights_cells import (
    ALLOWED,
    HOW,
    MADE_BY_ASKING,
    PREFIXED,
    SERVED,
    beside,
    cells,
    configure,
    everything,
    given,
)

NEVER = "nothing of transactions is coordinated here: 53 with the right, too"
CONFIGS = "-> topics.configs"


def test_every_served_api_that_needs_a_right_is_in_the_matrix_and_has_a_judge() -> None:
    cluster_wide = {api for api, rights in API_RIGHTS.items() if [right.of for right in rights] == [""]}
    needing = {api for api in SERVED if API_RIGHTS[api]}
    assert needing - FIELDS.keys() - cluster_wide == set()
    assert needing - JUDGES.keys() == set()


@pytest.mark.parametrize(("api", "place"), list(cells()))
def test_a_right_that_is_missing_or_denied_refuses_and_one_that_is_given_does_not(api: str, place: int) -> None:
    asyncio.run(matrix(api, place))


async def matrix(api: str, place: int) -> None:
    tried, others = API_RIGHTS[api][place], [each for at, each in enumerate(API_RIGHTS[api]) if at != place]
    number = count()
    lists = authorizer()
    async with MemoryNode({"other": 1}, lists) as node:
        root, alice = Asked(node.dispatch, ROOT), Asked(node.dispatch, ALICE)
        for version in range(SERVED[api].first, SERVED[api].last + 1):
            for how in HOW:
                case = next(number)
                topic, group, txn = f"orders-{case}", f"readers-{case}", f"tx-{case}"
                names = {TOPIC: topic, GROUP: group, CLUSTER: CLUSTER_NAME, TRANSACTIONAL_ID: txn}
                missing = api == "CreateTopics" or tried.when == MADE_BY_ASKING
                await settle(root, ["other"] if missing else [topic], [group])
                if api == "ConsumerGroupDescribe":
                    await subscribe(root, group, [topic])
                await configure(root, group)
                lists.replace(
                    [
                        *given(tried, names[tried.resource_type], how),
                        # Nothing that would imply the right that is tried.
                        *(each for other in others for each in beside(tried, other, names[other.resource_type])),
                    ]
                )
                transactional = tried.resource_type is TRANSACTIONAL_ID
                asked = request(api, [topic], [group], txn if transactional else None)
                if tried.of.startswith("->"):
                    everything(api, version, asked)
                answer = await alice(api, version, asked)
                may = how in (ALLOWED, PREFIXED)
                about = f"{api} version {version}, {tried.operation.name}: {how}: {answer}"
                refused = REFUSALS[tried.resource_type] in set(codes(answer))
                if tried.lacking is WithoutRight.LEFT_OUT and tried.of != CONFIGS:
                    if tells_names(api, version):
                        assert (names[tried.resource_type] in set(words(answer))) == may, about
                elif not_asked(api, version, tried):
                    assert not refused, about
                elif transactional and may:
                    assert refused, NEVER
                else:
                    assert refused == (not may), about
        assert not node.bugs


def tells_names(api: str, version: int) -> bool:
    if api == "OffsetFetch":
        return version > 1
    if api in ("ListTransactions", "ElectLeaders", "ListPartitionReassignments"):
        return False  # A node on its own has none, and the request names its own.
    return api != "ListConfigResources" or version > 0


def not_asked(api: str, version: int, tried: RequiredRight) -> bool:
    """Where an old version has no place for what is tried."""
    if (api, version) == ("FindCoordinator", 0) or (api == "Produce" and version < 3):
        return tried.resource_type is TRANSACTIONAL_ID
    if api == "DescribeLogDirs" and version < 3:
        return True  # A refusal is an empty list.
    return tried.of == CONFIGS and version < 5


def test_what_stands_in_for_a_right_is_as_good() -> None:
    async def story() -> None:
        lists = authorizer()
        async with MemoryNode({"other": 1}, lists) as node:
            alice = Asked(node.dispatch, ALICE)
            for api, rights in API_RIGHTS.items():
                for right in rights:
                    other = right.instead
                    if api not in SERVED or other is None or other.of == SAME:
                        continue
                    # The last one is refused: the right to nothing.
                    for give in (True, False):
                        name = "other" if other.of == ANY_TOPIC else CLUSTER_NAME
                        rest = [acl(each.operation, each.resource_type, "*") for each in rights if each is not right]
                        lists.replace([*([acl(other.operation, other.resource_type, name)] if give else []), *rest])
                        await settle(Asked(node.dispatch, ROOT), ["other"], ["g"])
                        topic = f"new-{api.lower()}-{give}".lower()
                        answer = await alice(api, SERVED[api].last, request(api, [topic], ["g"]))
                        if right.lacking is WithoutRight.LEFT_OUT:
                            assert ("g" in set(words(answer))) == give, (api, answer)
                        else:
                            assert (REFUSALS[right.resource_type] in set(codes(answer))) == (not give), (api, answer)

    asyncio.run(story())


def test_everybody_may_know_the_nodes_and_who_may_look_at_the_cluster_what_he_may_do_there() -> None:
    async def story() -> None:
        lists = authorizer()
        async with MemoryNode({}, lists) as node:
            alice = Asked(node.dispatch, ALICE)
            for acls, operations in (([], 0), ([acl(Operation.DESCRIBE, CLUSTER)], 1 << Operation.DESCRIBE)):
                lists.replace(acls)
                for version in range(2):
                    for asked in (False, True):
                        answer = await alice("DescribeCluster", version, include_cluster_authorized_operations=asked)
                        assert [one.broker_id for one in answer.brokers] == [1]
                        assert answer.cluster_authorized_operations == (operations if asked else -(1 << 31))

    asyncio.run(story())
