// A producer by kafkajs: arguments are address, topic and partitions. It speaks as tests/support/kafka/producing.py does.
const readline = require('readline');
const { Kafka, logLevel } = require('kafkajs');

const [address, topic, partitions] = process.argv.slice(2);

async function main() {
  const retry = { retries: 100, maxRetryTime: 500 };
  const kafka = new Kafka({ clientId: 'js', brokers: address.split(','), logLevel: logLevel.NOTHING, retry, requestTimeout: 5000 });
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, retry });
  await producer.connect();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const number = Number(line);
    const partition = number % Number(partitions);
    const [where] = await producer.send({ topic, acks: -1, messages: [{ value: String(number), partition }] });
    console.log(JSON.stringify([number, partition, Number(where.baseOffset)]));
  }
  await producer.disconnect();
}

main().catch((failure) => {
  console.error(failure);
  process.exit(1);
});
