// How kafkajs logs in over TLS: arguments are a node's address, a CA's file, a mechanism, a user and a password.
const fs = require('fs');
const { Kafka, Partitioners, logLevel } = require('kafkajs');

const [address, ca, mechanism, username, password, topic] = process.argv.slice(2);
const kafka = new Kafka({
  clientId: 'story',
  brokers: [address],
  logLevel: logLevel.NOTHING,
  ssl: { ca: [fs.readFileSync(ca)] },
  sasl: { mechanism, username, password },
  retry: { retries: 0 },
});

async function main() {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  try {
    await producer.connect();
    const [told] = await producer.send({ topic, messages: [{ value: mechanism }] });
    console.log(`produced ${told.topicName}`);
  } catch (error) {
    console.log(`refused ${error.name}: ${error.message}`);
  } finally {
    await producer.disconnect();
  }
}

main().then(() => process.exit(0));
