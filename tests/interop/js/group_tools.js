// What kafkajs' admin sees of a group and may do to it: arguments are address, group, topic and "busy" (it has members)
// or "idle".
const { Kafka, logLevel } = require('kafkajs');

const [address, groupId, topic, when] = process.argv.slice(2);
const say = (...what) => console.log(what.join(' '));
const outcome = async (what, promise) => {
  try {
    await promise;
    say(what, 'done');
  } catch (error) {
    say(what, error.type || (error.groups && error.groups[0].error.type) || error.message);
  }
};

async function main() {
  const admin = new Kafka({ brokers: [address], logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  say('listed', (await admin.listGroups()).groups.some((one) => one.groupId === groupId && one.protocolType === 'consumer'));
  const { groups: [shown] } = await admin.describeGroups([groupId]);
  say('group', shown.state, shown.protocol, shown.members.map((member) => member.clientId).sort().join());
  await outcome('set', admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '3' }] }));
  if (when === 'idle') await outcome('reset', admin.resetOffsets({ groupId, topic, earliest: true }));
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] });
  say('offsets', partitions.sort((one, other) => one.partition - other.partition).map(({ offset }) => offset).join());
  await outcome('delete', admin.deleteGroups([groupId]));
  await admin.disconnect();
}

main();
