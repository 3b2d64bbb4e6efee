// What kafkajs makes of the log behind a node: arguments are its address and a topic to make.
const { Kafka, CompressionTypes, Partitioners, logLevel } = require('kafkajs');

const [address, topic] = process.argv.slice(2);
const MESSAGES = 2000;
const kafka = new Kafka({ clientId: 'story', brokers: [address], logLevel: logLevel.ERROR });

async function produce() {
  const producer = kafka.producer({ idempotent: true, createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  const messages = Array.from({ length: MESSAGES }, (_, n) => ({ value: `message ${n}`, partition: 0 }));
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const [told] = await producer.send({ topic, compression, messages });
    console.log(`produced ${told.baseOffset}`);
  }
  await producer.disconnect();
}

async function consume() {
  const consumer = kafka.consumer({ groupId: `${topic}-readers` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let right = 0;
  await new Promise((done) => {
    consumer.run({
      eachMessage: async ({ message }) => {
        right += message.value.toString() === `message ${message.offset % MESSAGES}`;
        if (Number(message.offset) === 2 * MESSAGES - 1) done();
      },
    });
  });
  console.log(`consumed ${right}`);
  await consumer.disconnect();
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  const wanted = { topics: [{ topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '86400001' }] }] };
  console.log(`made ${await admin.createTopics(wanted)} ${await admin.createTopics(wanted)}`);
  await produce();
  await consume();
  const ends = await admin.fetchTopicOffsets(topic);
  console.log(`ends ${ends.map(({ low, high }) => `${low}-${high}`).join(' ')}`);
  const { resources } = await admin.describeConfigs({ resources: [{ type: 2, name: topic, configNames: ['retention.ms'] }] });
  console.log(`retention ${resources[0].configEntries.map(({ configValue }) => configValue).join(' ')}`);
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '10' }] });
  await admin.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
