// One group member by kafkajs: arguments are address, group, topic and client id. It speaks as
// tests/support/kafka_worker.py does, and leaves when its input ends.
const { Kafka, logLevel } = require('kafkajs');

const [address, groupId, topic, clientId] = process.argv.slice(2);
const say = (what) => console.log(JSON.stringify(what));

async function main() {
  const kafka = new Kafka({ clientId, brokers: [address], logLevel: logLevel.NOTHING, retry: { retries: 50, maxRetryTime: 500 } });
  const consumer = kafka.consumer({ groupId, sessionTimeout: 3000, heartbeatInterval: 300, maxWaitTimeInMs: 200 });
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
