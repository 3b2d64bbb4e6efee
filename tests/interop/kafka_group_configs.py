"""What a Kafka broker and a node answer about settings of groups, by the three requests that ask and alter.

Only settings that Kafka 4.1 has are compared; a node has more.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct

GROUP: Final = 32
PUT, DROP, APPEND, SUBTRACT = range(4)
SESSION, BEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
PAUSE_S = 0.2
"""A broker knows of a change only a little later."""

Ask = Callable[..., Awaitable[Any]]
Step = tuple[str, int, str | None]


async def group_configs(ask: Ask, run: str) -> dict[str, object]:
    path = "IncrementalAlterConfigsRequest.resources"

    async def alter(name: str, *steps: Step, times: int = 1, trial: bool = False) -> object:
        rows = [struct(f"{path}.configs")(name=key, config_operation=how, value=value) for key, how, value in steps]
        asked = [struct(path)(resource_type=GROUP, resource_name=name, configs=rows)] * times
        answer = await ask("IncrementalAlterConfigs", 1, resources=asked, validate_only=trial)
        await asyncio.sleep(PAUSE_S)
        return answer and [each.error_code for each in answer.responses]

    async def replace(name: str, *wanted: tuple[str, str | None], trial: bool = False) -> object:
        path = "AlterConfigsRequest.resources"
        rows = [struct(f"{path}.configs")(name=key, value=value) for key, value in wanted]
        asked = [struct(path)(resource_type=GROUP, resource_name=name, configs=rows)]
        answer = await ask("AlterConfigs", 2, resources=asked, validate_only=trial)
        await asyncio.sleep(PAUSE_S)
        return answer and [each.error_code for each in answer.responses]

    async def told(name: str) -> object:
        path = "DescribeConfigsRequest.resources"
        asked = struct(path)(resource_type=GROUP, resource_name=name, configuration_keys=[SESSION, BEAT, "no.such"])
        (found,) = (await ask("DescribeConfigs", 4, resources=[asked], include_synonyms=True)).results
        return found.error_code, sorted(
            (row.name, row.value, row.config_source, row.config_type, row.read_only, row.is_sensitive, synonyms(row))
            for row in found.configs
        )

    async def listed() -> object:
        answer = await ask("ListConfigResources", 1, resource_types=[GROUP])
        return sorted(row.resource_name for row in answer.config_resources if row.resource_name.endswith(run))

    g, h, k = f"g{run}", f"h{run}", f"k/ \u00e9{run}"
    found: dict[str, object] = {
        "group configs: nobody's": await told(f"nobody{run}"),
        "group configs: no name": await told(""),
        "group configs: set": (await alter(g, (SESSION, PUT, "50000")), await told(g)),
        "group configs: listed": await listed(),
        "group configs: spaces": (await alter(k, (BEAT, PUT, " 6000 ")), await told(k)),
        "group configs: two, one of them bad": (
            await alter(h, (SESSION, PUT, "50000"), (BEAT, PUT, "1")),
            await told(h),
        ),
        "group configs: a trial": (await alter(h, (SESSION, PUT, "50000"), trial=True), await told(h)),
        "group configs: a bad trial": await alter(h, (SESSION, PUT, "5"), trial=True),
        "group configs: nothing": await alter(h),
        "group configs: twice": await alter(h, (SESSION, PUT, "50000"), (SESSION, DROP, None)),
        "group configs: one group twice": await alter(h, (SESSION, PUT, "50000"), times=2),
        "group configs: delete the unknown": await alter(h, ("no.such", DROP, None)),
        "group configs: replaced": (await replace(g, (BEAT, "7000")), await told(g)),
        "group configs: replaced on trial": (await replace(g, trial=True), await told(g)),
        "group configs: replaced by null": await replace(g, (SESSION, None)),
        "group configs: replaced by the unknown": await replace(g, ("no.such", "1")),
        "group configs: deleted": (await alter(g, (BEAT, DROP, "whatever")), await told(g)),
        "group configs: change of no name": await alter("", (SESSION, PUT, "50000")),
        "group configs: replacement of no name": await replace("", (SESSION, "50000")),
    }
    for value in ("44999", "60001", "0", "", "many", "5e4", "99999999999", None):
        found[f"group configs: session {value}"] = await alter(h, (SESSION, PUT, value))
    for value in ("4999", "15001"):
        found[f"group configs: heartbeat {value}"] = await alter(h, (BEAT, PUT, value))
    for how in (APPEND, SUBTRACT):
        found[f"group configs: operation {how}"] = await alter(h, (SESSION, how, "1"))
        found[f"group configs: operation {how} on the unknown"] = await alter(h, ("no.such", how, "1"))
    return found


def synonyms(row: Any) -> tuple[tuple[str, str, int], ...]:
    return tuple((each.name, each.value, each.source) for each in row.synonyms)
