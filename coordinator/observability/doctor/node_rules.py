"""Rules on the node itself: what it reports as wrong, its clock, what its process has left, and its listeners.

Of listeners the rules check certificates (expiry, files that cannot be used) and whether other machines reach one
that is plaintext or requires no rights.
"""

from collections.abc import Iterator

from muster.coordinator.config.listener_security import find_open_listeners
from muster.coordinator.config.tls import LISTENER_NAMES
from muster.coordinator.config.values import WITH_SASL, ListenerAddress, parse_listener
from muster.coordinator.observability.doctor.model import MOST_NAMES, DoctorFacts, RuleCase, seconds
from muster.coordinator.observability.views.formatting import plural

# The node
# --------

CLOCKS_APART_MS = 5_000
NEARLY_ALL = 0.8
"""Of descriptors."""
MUCH_MEMORY = 0.9
LITTLE_DISK = 0.1
LATE_MS = 250
STALLS = 3
LONG_STALL_MS = 1_000
STILL_SHARE = 0.001
"""Of the time that the node is up."""


TOLD_ELSEWHERE = frozenset({"certificate-ends", "certificate-ended", "certificate-not-read"})
"""Kinds of conditions that have rules of their own (doors.py)."""


def troubles(facts: DoctorFacts) -> Iterator[RuleCase]:
    """The node itself reports a problem, as `muster health` shows."""
    return tell_troubles(facts, warnings=False)


def warnings(facts: DoctorFacts) -> Iterator[RuleCase]:
    """The node itself reports that something would be lost if it failed."""
    return tell_troubles(facts, warnings=True)


def tell_troubles(facts: DoctorFacts, *, warnings: bool) -> Iterator[RuleCase]:
    for trouble in facts.node.troubles:
        if trouble.warning is not warnings or trouble.name.partition(":")[0] in TOLD_ELSEWHERE:
            continue
        lasted = seconds(max(0, facts.now_ms - trouble.since_ms) // 1000 * 1000)
        yield RuleCase(trouble.sentence, (f"condition {trouble.name}, for {lasted}, seen {trouble.count} times",))


def untold(facts: DoctorFacts) -> Iterator[RuleCase]:
    """Some groups cannot be checked: their node cannot be reached from here, or their shard is not served."""
    if facts.untold:
        yield RuleCase("not all groups could be looked at", facts.untold)


MANY_FAILED_LOGINS = 10


def logins_fail(facts: DoctorFacts) -> Iterator[RuleCase]:
    """Ten logins or more failed in the last ten minutes."""
    failed = facts.node.failed_logins
    count = sum(each for _, _, each, _ in failed)
    if count >= MANY_FAILED_LOGINS:
        told = [f"{address}, by {door}: {plural(each, 'time')}, the last: {why}" for door, address, each, why in failed]
        if (more := len(told) - MOST_NAMES) > 1:
            told[MOST_NAMES:] = [f"and {more} more addresses"]
        yield RuleCase(f"{count:,} logins failed in the last ten minutes", tuple(told))


def clocks(facts: DoctorFacts) -> Iterator[RuleCase]:
    """The clocks of the node and of the machine that runs the doctor differ by five seconds or more."""
    ahead_ms = facts.node.clock_ahead_ms
    if ahead_ms is not None and abs(ahead_ms) >= CLOCKS_APART_MS:
        way = "ahead of" if ahead_ms > 0 else "behind"
        yield RuleCase(
            f"the node's clock is {seconds(abs(ahead_ms))} {way} the clock here",
            ("a node keeps the wall clock of its start, and carries it on by the machine's steady one",),
        )


def descriptors(facts: DoctorFacts) -> Iterator[RuleCase]:
    """The process has four fifths of its permitted file descriptors open."""
    used, limit = facts.node.open_descriptors, facts.node.descriptor_limit
    if used is not None and limit and used >= NEARLY_ALL * limit:
        yield RuleCase(f"{used:,} of {limit:,} descriptors are open", (f"{100 * used / limit:.0f} % of the limit",))


def memory(facts: DoctorFacts) -> Iterator[RuleCase]:
    """The process uses nine tenths of its permitted memory."""
    used, limit = facts.node.resident_bytes, facts.node.memory_bytes
    if used is not None and limit and used >= MUCH_MEMORY * limit:
        yield RuleCase(
            f"the node has {used / 2**30:.1f} of {limit / 2**30:.1f} GiB of memory",
            (f"{100 * used / limit:.0f} % of what the control group or the machine allows",),
        )


def disk(facts: DoctorFacts) -> Iterator[RuleCase]:
    """Less than a tenth of the data directory's disk is free."""
    free, total = facts.node.disk_free_bytes, facts.node.disk_total_bytes
    said = any(trouble.name == "disk-nearly-full" for trouble in facts.node.troubles)
    if free is not None and total and free < LITTLE_DISK * total and not said:
        yield RuleCase(
            f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB are free where the data directory lies",
            (f"{100 * free / total:.1f} % is free",),
        )


def loop(facts: DoctorFacts) -> Iterator[RuleCase]:
    """The node's event loop runs late, or has stood still for a thousandth of the node's uptime."""
    late_ms, stalled_ms, up_ms = facts.node.loop_late_ms, facts.node.stalled_ms, facts.node.up_ms
    often = stalled_ms is not None and up_ms is not None and up_ms > 0 and stalled_ms >= STILL_SHARE * up_ms
    # One short stall in the first minutes of a node is its start.
    enough = (facts.node.stalls or 0) >= STALLS or (stalled_ms or 0) >= LONG_STALL_MS
    if (late_ms or 0) >= LATE_MS or (often and enough):
        yield RuleCase(
            "the node is late: its event loop stands still now and then",
            (
                f"{late_ms or 0} ms late when it was last asked",
                f"stood still {plural(facts.node.stalls or 0, 'time')} for {seconds(stalled_ms or 0)} in all, "
                f"in {seconds((up_ms or 0) // 1000 * 1000)}",
            ),
        )


# Its listeners
# -------------


def certificate_ends_soon(facts: DoctorFacts) -> Iterator[RuleCase]:
    """A listener's certificate expires within 14 days."""
    return find_certificate_troubles(facts, "certificate-ends")


def certificate_ended(facts: DoctorFacts) -> Iterator[RuleCase]:
    """A listener's certificate has expired."""
    return find_certificate_troubles(facts, "certificate-ended")


def certificate_not_read(facts: DoctorFacts) -> Iterator[RuleCase]:
    """A certificate file has changed and cannot be used."""
    return find_certificate_troubles(facts, "certificate-not-read")


def find_certificate_troubles(facts: DoctorFacts, kind: str) -> Iterator[RuleCase]:
    for trouble in facts.node.troubles:
        if trouble.name.partition(":")[0] == kind:
            yield RuleCase(trouble.sentence, (f"condition {trouble.name}",))


def listener_stands_open(facts: DoctorFacts) -> Iterator[RuleCase]:
    """Other machines can reach a listener that is plaintext or does not authorize requests."""
    settings = facts.node.settings
    doors = {
        name: door
        for name, setting in LISTENER_NAMES.items()
        if (door := parse_known_listener(settings.get(setting, ""))) is not None
    }
    for listener, address, why in find_open_listeners(doors, settings.get("authorizer", "none")):
        yield RuleCase(f"{listener} is {address}: {why}", (f"authorizer is {settings.get('authorizer', 'none')}",))


def parse_known_listener(text: str) -> ListenerAddress | None:
    """None where nothing is served; a node of another version may speak what is not known here."""
    try:
        return parse_listener(text, WITH_SASL) if text else None
    except ValueError:
        return None
