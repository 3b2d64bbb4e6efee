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
        "Records written there are not read, and no client reports an error.",
        "Let a member subscribe to the topic, or choose an assignor that assigns all partitions (`muster simulate` "
        "previews it).",
        group=assignment_rules.unowned,
    ),
    DoctorRule(
        "topic-abandoned",
        WARNING,
        "Its lag grows without end, and hides the lag that matters.",
        "Start members that subscribe to it, or delete its positions: `muster groups delete-offsets`.",
        group=assignment_rules.abandoned,
    ),
    DoctorRule(
        "group-stopped",
        ERROR,
        "The members send heartbeats, so they keep their partitions, but they process nothing.",
        "Check the members' logs and threads: an outage of what they write to, a deadlock, failing commits.",
        group=progress_rules.stopped,
    ),
    DoctorRule(
        "partition-stuck",
        ERROR,
        "One record that cannot be processed (a poison pill) blocks all records after it.",
        "Inspect the record (`muster consume --topic T --partition N --from OFFSET --max-messages 1`), fix the "
        "consumer, or skip the record: stop the group, then `muster groups reset-offsets --topic T:N --to +1 "
        "--execute`.",
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
        "The member works, but its progress is lost: the next owner of its partitions repeats all of it.",
        "The code gives the reason. REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH: the member commits "
        "after a rebalance what it received before; it takes too long for one batch (`max.poll.records`, "
        "`max.poll.interval.ms`). OFFSET_METADATA_TOO_LARGE: shorten the metadata that it commits.",
        group=progress_rules.commits_refused,
    ),
    DoctorRule(
        "member-does-not-commit",
        WARNING,
        "After the next rebalance, everything since its last commit is read again.",
        "Look for refused commits in its log (an old generation, unknown offsets); restart it if there are none.",
        group=progress_rules.one_does_not_commit,
    ),
    DoctorRule(
        "member-flaps",
        ERROR,
        "Each join and leave is a rebalance of the whole group.",
        "Find out why the process ends (exit code, memory limit, failing probe); until then stop it, or give it a "
        "`group.instance.id`, so that it gets its partitions back without a rebalance.",
        group=rebalance_rules.flapping,
    ),
    DoctorRule(
        "rebalance-storm",
        ERROR,
        "In each rebalance, partitions have no owner for a while; eager groups stop completely.",
        "See what happened with `muster groups explain`; use a cooperative assignor or static members, and change a "
        "few members at a time.",
        group=rebalance_rules.storm,
    ),
    DoctorRule(
        "rebalances-superseded",
        WARNING,
        "A superseded rebalance makes no plan: no member gets its partitions.",
        "Let members join together (`group.initial.rebalance.delay.ms`), and see which members join and leave: "
        "`muster groups explain`.",
        group=rebalance_rules.superseded,
    ),
    DoctorRule(
        "leader-never-syncs",
        ERROR,
        "The group waits a whole rebalance timeout for a plan, removes its leader and starts again.",
        "Check the leader: it is stuck in its assignor or its callbacks, or lost its connection between JoinGroup and "
        "SyncGroup. `muster groups set G assignor=uniform` lets the coordinator plan instead.",
        group=rebalance_rules.leader_never_syncs,
    ),
    DoctorRule(
        "rebalance-overdue",
        ERROR,
        "No member of the group gets partitions before it ends.",
        "This should not happen: see the node's log, and report it with the output of `muster groups describe "
        "--state`.",
        group=rebalance_rules.overdue,
    ),
    DoctorRule(
        "no-plan",
        ERROR,
        "The group keeps its previous plan, or uses another assignor: new members get nothing.",
        "The entry says what failed; try the assignor with `muster simulate`, and fix its plugin or options.",
        group=rebalance_rules.no_plan,
    ),
    DoctorRule(
        "sessions-expire",
        WARNING,
        "Members are removed although they may be alive: long pauses, a blocked process, a bad network.",
        "Look for pauses (garbage collection, CPU limits) on the named hosts; if they cannot be avoided, raise "
        "`session.timeout.ms` (the default of current clients is 45000).",
        group=client_rules.sessions_end,
    ),
    DoctorRule(
        "polls-late",
        WARNING,
        "Processing one batch takes longer than `max.poll.interval.ms`: the member leaves, and its work is repeated.",
        "Take fewer records per poll (`max.poll.records`), raise `max.poll.interval.ms`, or pause partitions during "
        "long work.",
        group=client_rules.polls_late,
    ),
    DoctorRule(
        "session-under-three-heartbeats",
        WARNING,
        "One or two late heartbeats end the session, and cause a needless rebalance.",
        "Set `heartbeat.interval.ms` to a third of `session.timeout.ms` or less.",
        group=client_rules.few_heartbeats,
    ),
    DoctorRule(
        "poll-interval-under-session",
        WARNING,
        "A live member misses a rebalance, and a dead one is detected late.",
        "Set `max.poll.interval.ms` above `session.timeout.ms` (300000 and 45000 are the clients' defaults).",
        group=client_rules.poll_under_session,
    ),
    DoctorRule(
        "session-too-long",
        ADVICE,
        "A dead member's partitions are not read until its session ends.",
        "Lower `session.timeout.ms`; for planned restarts, use static membership instead of a long session.",
        group=client_rules.long_session,
    ),
    DoctorRule(
        "rebalance-timeout-long",
        ADVICE,
        "All members of an eager group wait for the slowest one.",
        "Lower `max.poll.interval.ms`, and do long work with paused partitions while the member polls.",
        group=client_rules.long_rebalance,
    ),
    DoctorRule(
        "retries-under-session",
        WARNING,
        "A dead member's partitions cannot be claimed before its session ends: all attempts fail until then.",
        "Raise `group.central.rebalance.max.retries` or `.backoff.ms`: the product has to exceed the session timeout.",
        group=client_rules.retries_under_session,
    ),
    DoctorRule(
        "static-id-used-twice",
        ERROR,
        "Two processes with one `group.instance.id` fence each other; neither makes progress.",
        "Give each process an id of its own, such as its StatefulSet's pod name.",
        group=client_rules.used_twice,
    ),
    DoctorRule(
        "static-id-never-reused",
        WARNING,
        "Ids that change with each start are worse than no static membership: a member that left keeps its partitions "
        "until its session ends.",
        "Use ids that stay the same after a restart (an ordinal, not a random suffix), or no ids.",
        group=client_rules.never_reused,
    ),
    DoctorRule(
        "assignor-mixture",
        WARNING,
        "A group runs only what every member offers.",
        "Roll out in two rounds: first every member offers both assignors, then the old one is removed.",
        group=assignment_rules.mixed_offers,
    ),
    DoctorRule(
        "assignor-kept-out",
        WARNING,
        "The assignor that an operator chose does not plan the group.",
        "Stop or change the named member; if its client reads only assigned partitions, list its protocol in "
        "`assignor.protocols`; a suspended setting takes effect again once it is set again.",
        group=assignment_rules.kept_out,
    ),
    DoctorRule(
        "more-members-than-partitions",
        ADVICE,
        "Members without partitions cost memory and connections, and take part in each rebalance.",
        "Run fewer members, or add partitions: `muster topics add-partitions`.",
        group=assignment_rules.idle_members,
    ),
    DoctorRule(
        "skew-by-count",
        WARNING,
        "The member with the most partitions limits the speed of the group.",
        "Compare assignors: `muster simulate --group G --compare uniform,cooperative-sticky`.",
        group=assignment_rules.skewed_by_count,
    ),
    DoctorRule(
        "skew-by-lag",
        WARNING,
        "The group is as far behind as its slowest member, however fast the others are.",
        "Let the coordinator assign by lag (`muster groups set G assignor=lag-sticky`, without a change of the "
        "clients; `muster simulate` previews it), or find out why this member is slow.",
        group=assignment_rules.skewed_by_lag,
    ),
    DoctorRule(
        "skew-by-rate",
        ADVICE,
        "The member with the hottest partitions is the first to fall behind.",
        "Spread the keys better, add partitions, or assign by lag.",
        group=assignment_rules.skewed_by_rate,
    ),
    DoctorRule(
        "client-defect",
        WARNING,
        "The defect is in the client: no setting of the node helps.",
        "Upgrade the client.",
        group=client_rules.known_defects,
    ),
    DoctorRule(
        "node-trouble",
        ERROR,
        "The node reports it too, in its log and by `muster health`.",
        "The sentence says what to do.",
        node=node_rules.troubles,
    ),
    DoctorRule(
        "node-warning",
        WARNING,
        "The node serves everything and `muster health` succeeds; what the sentence names is lost if the node fails.",
        "The sentence says what to do before that.",
        node=node_rules.warnings,
    ),
    DoctorRule(
        "groups-untold",
        ERROR,
        "Problems of these groups are missing here, and their members may not reach the coordinator either: clients "
        "are sent to it as long as it belongs to the cluster.",
        "Run this command where the members run. If they cannot reach that node either, move its groups to others: "
        "`muster cluster drain NODE`; then check the network, and the node's `advertised.listeners`.",
        node=node_rules.untold,
    ),
    DoctorRule(
        "certificate-ended",
        ERROR,
        "Clients refuse to connect; open connections stay for now.",
        "Put a new certificate into its file (`ssl.keystore.location`); no restart is needed.",
        node=node_rules.certificate_ended,
    ),
    DoctorRule(
        "certificate-ends-soon",
        WARNING,
        "From then on, no client can connect.",
        "Put a new certificate into its file (`ssl.keystore.location`); no restart is needed. `muster certs show "
        "FILE` shows its expiry.",
        node=node_rules.certificate_ends_soon,
    ),
    DoctorRule(
        "certificate-not-read",
        ERROR,
        "The previous certificate stays in use until it expires; removed authorities are still trusted.",
        "The sentence says which file, and what is wrong with it.",
        node=node_rules.certificate_not_read,
    ),
    DoctorRule(
        "door-open",
        WARNING,
        "Anyone in the same network can read the traffic, or send requests.",
        "Put `SSL://` before the listener's address, and set `authorizer=acl`: docs/security.md has the lines.",
        node=node_rules.listener_stands_open,
    ),
    DoctorRule(
        "logins-fail",
        WARNING,
        "A client that cannot log in does not work and says so on its own side only; or somebody guesses passwords.",
        "Check the clients at these addresses: the user's name, its password or token, the mechanism. The audit log "
        "has each attempt.",
        node=node_rules.logins_fail,
    ),
    DoctorRule(
        "clock-skew",
        WARNING,
        "Retention, commit timestamps and the ledger's times are off by as much, and cannot be compared.",
        "Synchronise the clocks of both machines (chrony, systemd-timesyncd); a node follows a corrected clock after "
        "a restart.",
        node=node_rules.clocks,
    ),
    DoctorRule(
        "descriptors-short",
        ERROR,
        "Without descriptors no client can connect, and no segment can be opened.",
        "Raise `LimitNOFILE=` (systemd) or `ulimit -n`, or find the clients that open a connection for each call.",
        node=node_rules.descriptors,
    ),
    DoctorRule(
        "memory-short",
        ERROR,
        "Beyond the limit the kernel kills the process, and all its groups wait for the restart.",
        "Give the node more memory, or fewer groups and smaller requests: docs/operations.md says what takes memory.",
        node=node_rules.memory,
    ),
    DoctorRule(
        "disk-short",
        WARNING,
        "Once it is full, appends and commits are refused.",
        "Lower `retention.ms` or `retention.bytes` of large topics, delete topics, or add disk space.",
        node=node_rules.disk,
    ),
    DoctorRule(
        "loop-late",
        WARNING,
        "While the event loop is blocked, no request is answered. No member expires because of it.",
        "Give the node a core of its own and a disk that flushes fast; its log gives the reason (`the node stood "
        "still`).",
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
