"""Every rule, and what becomes of facts: the findings, worst first. docs/observe.md lists the rules from here."""

from collections.abc import Iterable, Sequence

from muster.coordinator.observability.doctor import (
    assignment_rules,
    client_rules,
    node_rules,
    progress_rules,
    rebalance_rules,
)
from muster.coordinator.observability.doctor.model import (
    DoctorFacts,
    DoctorFinding,
    DoctorRule,
    ExaminedGroup,
    RuleCase,
    Severity,
)

ADVICE, WARNING, ERROR = Severity.ADVICE, Severity.WARNING, Severity.ERROR

RULES: tuple[DoctorRule, ...] = (
    DoctorRule(
        "partitions-unowned",
        ERROR,
        "Nobody reads what is written there, and no client reports an error.",
        "Let a member subscribe to the topic, or choose an assignor that shares everything out "
        "(`muster simulate` shows what it would do).",
        group=assignment_rules.unowned,
    ),
    DoctorRule(
        "topic-abandoned",
        WARNING,
        "Its lag grows for ever, and hides the lag that matters.",
        "Start members that subscribe to it, or forget its positions: `muster groups delete-offsets`.",
        group=assignment_rules.abandoned,
    ),
    DoctorRule(
        "group-stopped",
        ERROR,
        "The members send heartbeats, so nobody takes their partitions over, but nothing is worked off.",
        "Look at the members' own logs and threads: an outage of what they write to, a deadlock, commits that fail.",
        group=progress_rules.stopped,
    ),
    DoctorRule(
        "partition-stuck",
        ERROR,
        "One record that cannot be digested (a poison pill) holds up all that come after it.",
        "Look at the record (`muster consume --topic T --partition N --from OFFSET --max-messages 1`), mend its "
        "consumer, or step over it: stop the group, then `muster groups reset-offsets --topic T:N --to +1 --execute`.",
        group=progress_rules.stuck,
    ),
    DoctorRule(
        "records-removed-unread",
        WARNING,
        "These records are lost to the group: it goes on at the log's start, or, with `auto.offset.reset=latest`, at "
        "its end.",
        "Read them from their source again where they count. Let the group keep up, or keep records for longer "
        "(`retention.ms` of the topic). The rule falls silent when the group commits.",
        group=progress_rules.removed_unread,
    ),
    DoctorRule(
        "commits-refused",
        ERROR,
        "It works, and nothing of that is kept: whoever has its partitions next does all of it again.",
        "The code says why. REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH: it commits after a "
        "rebalance what it was given before; its work on one batch takes too long (`max.poll.records`, "
        "`max.poll.interval.ms`). OFFSET_METADATA_TOO_LARGE: shorten what it stores with its positions.",
        group=progress_rules.commits_refused,
    ),
    DoctorRule(
        "member-does-not-commit",
        WARNING,
        "After the next rebalance everything since its last commit is read again.",
        "Look for refused commits in its log (a generation that is over, offsets that are unknown); restart it when "
        "there are none.",
        group=progress_rules.one_does_not_commit,
    ),
    DoctorRule(
        "member-flaps",
        ERROR,
        "Each coming and going is a rebalance of the whole group.",
        "Find out why the process ends (exit code, memory limit, failing probe); until then stop it, or give it a "
        "`group.instance.id`, so that it gets its partitions back without a rebalance.",
        group=rebalance_rules.flapping,
    ),
    DoctorRule(
        "rebalance-storm",
        ERROR,
        "With each rebalance partitions have no owner for a while; eager groups stop altogether.",
        "See the causes with `muster groups history`; use a cooperative assignor or static members, and deploy a few "
        "members at a time.",
        group=rebalance_rules.storm,
    ),
    DoctorRule(
        "rebalances-superseded",
        WARNING,
        "A rebalance that is overtaken comes to no plan: nobody learns what is his.",
        "Let members join together (`group.initial.rebalance.delay.ms`), and see who comes and goes: "
        "`muster groups explain`.",
        group=rebalance_rules.superseded,
    ),
    DoctorRule(
        "leader-never-syncs",
        ERROR,
        "The group waits a whole rebalance timeout for a plan, puts its leader out and begins again.",
        "Look at the leader: it is stuck in its assignor or its callbacks, or cut off between JoinGroup and SyncGroup. "
        "`muster groups set G assignor=uniform` lets the coordinator plan instead.",
        group=rebalance_rules.leader_never_syncs,
    ),
    DoctorRule(
        "rebalance-overdue",
        ERROR,
        "Nobody in the group gets partitions before it ends.",
        "This ought not to be: see the node's log, and report it with `muster groups describe --state`.",
        group=rebalance_rules.overdue,
    ),
    DoctorRule(
        "no-plan",
        ERROR,
        "The group goes on with the plan of before, or with another assignor: new members get nothing.",
        "The entry says what failed; try the assignor with `muster simulate`, and mend its plugin or options.",
        group=rebalance_rules.no_plan,
    ),
    DoctorRule(
        "sessions-expire",
        WARNING,
        "Members are given up although they may be alive: long pauses, a blocked process, a bad network.",
        "Look for pauses (garbage collection, CPU limits) on the hosts that are named; raise `session.timeout.ms` "
        "(45000 is the default of today's clients) when they cannot be avoided.",
        group=client_rules.sessions_end,
    ),
    DoctorRule(
        "polls-late",
        WARNING,
        "The work on one batch takes longer than `max.poll.interval.ms`: the member leaves, its work is done again.",
        "Take fewer records at once (`max.poll.records`), raise `max.poll.interval.ms`, or pause partitions while the "
        "work goes on.",
        group=client_rules.polls_late,
    ),
    DoctorRule(
        "session-under-three-heartbeats",
        WARNING,
        "One or two heartbeats that are late end the session: a rebalance for nothing.",
        "Set `heartbeat.interval.ms` to a third of `session.timeout.ms` or less.",
        group=client_rules.few_heartbeats,
    ),
    DoctorRule(
        "poll-interval-under-session",
        WARNING,
        "A member that is alive misses a rebalance, and a dead one is noticed late.",
        "Set `max.poll.interval.ms` above `session.timeout.ms` (300000 and 45000 are the clients' defaults).",
        group=client_rules.poll_under_session,
    ),
    DoctorRule(
        "session-too-long",
        ADVICE,
        "Nobody reads a dead member's partitions until its session ends.",
        "Lower `session.timeout.ms`; a planned restart is bridged by static membership better than by a long session.",
        group=client_rules.long_session,
    ),
    DoctorRule(
        "rebalance-timeout-long",
        ADVICE,
        "All members of an eager group wait for the slowest one.",
        "Lower `max.poll.interval.ms`, and let long work go on with paused partitions while the member polls.",
        group=client_rules.long_rebalance,
    ),
    DoctorRule(
        "retries-under-session",
        WARNING,
        "The dead member's partitions cannot be had before its session is over: all attempts fail before that.",
        "Raise `group.central.rebalance.max.retries` or `.backoff.ms`: the product has to exceed the session timeout.",
        group=client_rules.retries_under_session,
    ),
    DoctorRule(
        "static-id-used-twice",
        ERROR,
        "Two processes with one `group.instance.id` push each other out; neither gets on with its work.",
        "Give each process an id of its own, such as its StatefulSet's pod name.",
        group=client_rules.used_twice,
    ),
    DoctorRule(
        "static-id-never-reused",
        WARNING,
        "Ids that are new with each start make static membership worse than none: who went keeps his partitions until "
        "his session ends.",
        "Use ids that come back after a restart (an ordinal, not a random suffix), or none at all.",
        group=client_rules.never_reused,
    ),
    DoctorRule(
        "assignor-mixture",
        WARNING,
        "A group runs only what every member offers.",
        "Roll out in two rounds: first every member offers both assignors, then the old one is taken out.",
        group=assignment_rules.mixed_offers,
    ),
    DoctorRule(
        "assignor-kept-out",
        WARNING,
        "The assignor that an operator wants is not the one that shares out.",
        "Stop or change the member that is named; if its client reads only partitions in its share, name what it votes "
        "for in `assignor.protocols`; a setting that is suspended counts again once it is set again.",
        group=assignment_rules.kept_out,
    ),
    DoctorRule(
        "more-members-than-partitions",
        ADVICE,
        "Members without partitions cost memory and connections, and take part in each rebalance.",
        "Run fewer members, or widen the topic: `muster topics add-partitions`.",
        group=assignment_rules.idle_members,
    ),
    DoctorRule(
        "skew-by-count",
        WARNING,
        "The member with most partitions decides how fast the group is.",
        "Compare assignors: `muster simulate --group G --compare uniform,cooperative-sticky`.",
        group=assignment_rules.skewed_by_count,
    ),
    DoctorRule(
        "skew-by-lag",
        WARNING,
        "The group is as late as its latest member, however fast the others are.",
        "Let the coordinator share out by lag (`muster groups set G assignor=lag-sticky`, which needs nothing of the "
        "clients; see it first: `muster simulate`), or look at why this member is slow.",
        group=assignment_rules.skewed_by_lag,
    ),
    DoctorRule(
        "skew-by-rate",
        ADVICE,
        "The member with the hottest partitions is the first that falls behind.",
        "Spread the keys better, widen the topic, or share out by lag.",
        group=assignment_rules.skewed_by_rate,
    ),
    DoctorRule(
        "client-defect",
        WARNING,
        "The defect is the client's own: no setting of the node helps.",
        "Upgrade the client.",
        group=client_rules.known_defects,
    ),
    DoctorRule(
        "node-trouble",
        ERROR,
        "The node itself says so, in its log and to `muster health` as well.",
        "The sentence says what to do.",
        node=node_rules.troubles,
    ),
    DoctorRule(
        "groups-untold",
        ERROR,
        "What is wrong with them is not among these findings, and their members may reach their coordinator no more "
        "than you do: clients are sent to it for as long as it is one of the cluster.",
        "Ask from where the members are. Where they do not reach that node either, have others take its groups: "
        "`muster cluster drain NODE`; then look at the network, or at what it tells to be its address "
        "(`advertised.listeners`).",
        node=node_rules.untold,
    ),
    DoctorRule(
        "certificate-ended",
        ERROR,
        "Clients that look at it, as all do, refuse to connect; who is connected stays so for now.",
        "Put a new one in its file (`ssl.keystore.location`); no restart is needed.",
        node=node_rules.certificate_ended,
    ),
    DoctorRule(
        "certificate-ends-soon",
        WARNING,
        "From then on no client gets in.",
        "Put a new one in its file (`ssl.keystore.location`); no restart is needed. `muster certs show FILE` tells its "
        "end.",
        node=node_rules.certificate_ends_soon,
    ),
    DoctorRule(
        "certificate-not-read",
        ERROR,
        "The one of before is shown, until it ends; authorities that were taken away are still believed.",
        "The sentence says which file, and what is wrong with it.",
        node=node_rules.certificate_not_read,
    ),
    DoctorRule(
        "door-open",
        WARNING,
        "Whoever is in the same network may do, or read, what is said here.",
        "Put `SSL://` before the listener's address, and set `authorizer=acl`: docs/security.md has the lines.",
        node=node_rules.listener_stands_open,
    ),
    DoctorRule(
        "clock-skew",
        WARNING,
        "Retention, timestamps of commits and the ledger's times are off by as much, and cannot be compared.",
        "Let both machines keep time (chrony, systemd-timesyncd); a node follows a corrected clock after a restart.",
        node=node_rules.clocks,
    ),
    DoctorRule(
        "descriptors-short",
        ERROR,
        "Without descriptors no client can connect, and no segment be opened.",
        "Raise `LimitNOFILE=` (systemd) or `ulimit -n`, or find the clients that open a connection for each call.",
        node=node_rules.descriptors,
    ),
    DoctorRule(
        "memory-short",
        ERROR,
        "Beyond the limit the kernel ends the process, and all its groups wait for the restart.",
        "Give it more, or fewer groups and smaller requests: docs/operations.md says what takes memory.",
        node=node_rules.memory,
    ),
    DoctorRule(
        "disk-short",
        WARNING,
        "Once it is full, appends and commits are refused.",
        "Lower `retention.ms` or `retention.bytes` of large topics, delete topics, or give the disk more.",
        node=node_rules.disk,
    ),
    DoctorRule(
        "loop-late",
        WARNING,
        "While the loop stands still nobody is answered. Nobody is expired for it either.",
        "Give the node a core of its own and a disk that flushes fast; its log says why (`the node stood still`).",
        node=node_rules.loop,
    ),
)


def examine_facts(facts: DoctorFacts) -> list[DoctorFinding]:
    """All that is found: errors first, then the node, then groups by name."""
    found = [finding for rule in RULES for finding in apply_rule(rule, facts)]
    return sorted(found, key=lambda finding: (-finding.severity, finding.group))


def examine_group(group: ExaminedGroup, facts: DoctorFacts) -> list[DoctorFinding]:
    """What is found of one group, worst first: the page's sentence on its health is the first of it."""
    found = (make_finding(rule, group.id, case) for rule in RULES if rule.group for case in rule.group(group, facts))
    return sorted(found, key=lambda finding: -finding.severity)


def apply_rule(rule: DoctorRule, facts: DoctorFacts) -> Iterable[DoctorFinding]:
    if rule.node:
        yield from (make_finding(rule, "", case) for case in rule.node(facts))
    if rule.group:
        for group in facts.groups:
            yield from (make_finding(rule, group.id, case) for case in rule.group(group, facts))


def make_finding(rule: DoctorRule, group: str, case: RuleCase) -> DoctorFinding:
    return DoctorFinding(
        rule.name, case.severity or rule.severity, group, case.what, case.evidence, rule.why, case.todo or rule.cure
    )


def has_problem(findings: Sequence[DoctorFinding]) -> bool:
    """Whether anything is more than advice."""
    return any(finding.severity > Severity.ADVICE for finding in findings)
