"""Muster over somebody's Kafka: which node may speak for a shard, and what it may write. Pure, beside core and cluster.

Nothing here reads a clock, a socket or a random number, and nothing knows a wire format but JSON: moments are ms of one
monotonic clock of the node, what happens comes in as `events`, what is to be done goes out as `effects`. Rules are
quoted by their numbers (KB-F1, KB-S4, KB-A2, KB-T4).

    node_shards.py          `NodeShards(settings).step(event, now_ms)` gives effects: all shards of one node; owns the
                            rest.
    shard_assignment.py     KB-F1, KB-F2: the JSON in JoinGroup, the leader's plan, the map in every SyncGroup answer.
                            Functions.
    lease.py                KB-F7: until when a node may answer, and append. `Lease`: `heartbeat_answered(sent_ms,
                            code)`, `synced(sent_ms)`, `lost()`, `holds(now_ms)`. Also `Stage`: how far a shard has
                            come.
    shard_acquisition.py    KB-F3, KB-F6, KB-S7: one shard, from its assignment to this node until it serves.
    shard_log.py            KB-S4, KB-S7: `ShardReplay.take(batch)` gives the records of one batch that count, at their
                            place in the log. KB-H1: `LogLosses`, what a shard's log has lost, and the word of an
                            operator that it counts.
    append_queues.py        KB-A1 to KB-A4: what is written, batch after batch, one request to a broker at a time.
    client_transactions.py  KB-E1 to KB-E5: offsets in transactions of clients, until their markers.
    topic_presence.py       KB-T1, KB-T4: which topics there are, and when one is gone. `TopicPresence`; stands by
                            itself.

**Who performs it.** The edge keeps one `NodeShards` and one membership of the nodes' group (`client.members`'s classic
machine). Every effect that asks for something has `request`, a number; the event that answers repeats it. An answer
with a number that nobody waits for any more is dropped, so the edge may answer late and need not know what has become
of the shard. A request that the edge could not bring to an end (no connection, deadline) is answered by
`RequestWithoutAnswer`, or `ProduceLost`; the machine asks again, after a back-off of its own: the edge never tries
again by itself.

**The nodes' group and the machine.** act.Assign -> `Share`; act.Revoke -> `Revoke`, whose end is the effect
`ShardsLetGo` (then: ev.Revoked); act.Lost, and every end of the membership -> `MembershipLost`. Each answered Heartbeat
and SyncGroup -> `LeaseHeartbeatAnswered`, `Synced`, with the moment *before the request's first byte was written*.

A member whose share leaves `shard_assignment.joins_again_ms` above 0 joins once more after so long, and its bid has the
generation of its map: only so does Kafka begin a round for a static member that came back. LeaveGroup names the member
id beside the instance id: by the instance id alone a process that woke late would put out the one that took its place.

**Writing.** `ShardAppend` is what one turn decided, already encoded as records; which turns share a batch,
its sequence and its broker are the machine's. `Produce` names batches; each is sealed into bytes once, when it is first
sent, and `ShardBatch.wire` keeps these for when it must be sent again.

**Reading.** The edge decodes what it fetched into `LogBatch`; `ApplyRecords` names those records that count.
"""
