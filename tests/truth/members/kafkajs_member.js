// One group member by kafkajs. It takes its job and its commands, and speaks, as python_member.py does.
const readline = require('readline');
const { createRequire } = require('module');
const path = require('path');

const { Kafka, logLevel } = createRequire(path.join(__dirname, '../../interop/js/package.json'))('kafkajs');

const job = JSON.parse(process.argv[2]);
const say = (what) => console.log(JSON.stringify(what));

async function main() {
  const kafka = new Kafka({
    clientId: job.name,
    brokers: job.address.split(','),
    logLevel: logLevel.NOTHING,
    retry: { retries: 50, maxRetryTime: 500 },
  });
  const consumer = kafka.consumer({
    groupId: job.group,
    sessionTimeout: job.session_ms,
    heartbeatInterval: job.heartbeat_ms,
    metadataMaxAge: job.metadata_ms,
    maxWaitTimeInMs: 100,
    allowAutoTopicCreation: false,
  });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const held = Object.entries(payload.memberAssignment || {});
    say({ assigned: held.flatMap(([topic, partitions]) => partitions.map((partition) => [topic, partition])) });
  });
  consumer.on(consumer.events.REBALANCING, () => say({ rebalancing: true }));
  const input = readline.createInterface({ input: process.stdin });
  input.on('line', async (line) => {
    if (line.trim() === 'exit') process.exit(0);
    if (line.trim() === 'close') {
      await consumer.disconnect();
      say({ closed: true });
      process.exit(0);
    }
  });
  input.on('close', () => process.exit(0));
  await consumer.connect();
  await consumer.subscribe({ topics: job.pattern ? [new RegExp(job.pattern)] : job.topics, fromBeginning: true });
  const commits = job.commit_ms > 0 ? { autoCommit: true, autoCommitInterval: job.commit_ms } : { autoCommit: false };
  await consumer.run({ ...commits, eachMessage: async () => {} });
}

main();
