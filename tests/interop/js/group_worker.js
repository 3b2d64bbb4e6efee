// One group member by kafkajs: arguments are address, group, topic, client id and the name of an assignor (without:
// kafkajs' own). It speaks as tests/support/kafka/worker.py does, and leaves when its input ends.
const { AssignerProtocol: { MemberMetadata, MemberAssignment }, Kafka, logLevel } = require('kafkajs');

const [address, groupId, topic, clientId, assignor] = process.argv.slice(2);
const say = (what) => console.log(JSON.stringify(what));

// kafkajs knows none of the names that others use, so a mixed group needs one that bears such a name.
const named = (name) => ({ cluster }) => ({
  name,
  version: 0,
  protocol: ({ topics }) => ({ name, metadata: MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) }) }),
  assign: async ({ members, topics }) => members.map(({ memberId }, place) => ({
    memberId,
    memberAssignment: MemberAssignment.encode({
      version: 0,
      assignment: Object.fromEntries(topics.map((each) => [each, cluster.findTopicPartitionMetadata(each)
        .map(({ partitionId }) => partitionId).filter((number) => number % members.length === place)])),
      userData: Buffer.alloc(0),
    }),
  })),
});

async function main() {
  const kafka = new Kafka({ clientId, brokers: address.split(','), logLevel: logLevel.NOTHING, requestTimeout: Number(process.env.REQUEST_MS || 30000), retry: { retries: Number(process.env.RETRIES || 50), maxRetryTime: 500 } });
  const consumer = kafka.consumer({ groupId, sessionTimeout: Number(process.env.SESSION_MS || 3000), heartbeatInterval: 300, metadataMaxAge: Number(process.env.METADATA_MS || 300000), maxWaitTimeInMs: 200, ...(assignor && { partitionAssigners: [named(assignor)] }) });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    say({ assigned: (payload.memberAssignment[topic] || []).sort() });
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    eachBatch: async ({ batch, resolveOffset, commitOffsetsIfNecessary, heartbeat }) => {
      say({ read: batch.messages.map((message) => [batch.partition, Number(message.offset)]) });
      resolveOffset(batch.lastOffset());
      await commitOffsetsIfNecessary();
      await heartbeat();
    },
  });
  process.stdin.resume();
  process.stdin.on('end', async () => {
    await consumer.disconnect();
    say({ left: true });
    process.exit(0);
  });
}

main();
