import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Transactions of Kafka's own client with positions of its group: arguments are address, group, the topic that is read
 * and the one that is written. After each transaction it prints what is committed.
 */
public class ExactlyOnce {
  public static void main(String[] arguments) {
    TopicPartition place = new TopicPartition(arguments[2], 0);
    String bytes = "org.apache.kafka.common.serialization.ByteArray";
    Properties reads = new Properties();
    reads.put("bootstrap.servers", arguments[0]);
    reads.put("group.id", arguments[1]);
    reads.put("enable.auto.commit", "false");
    reads.put("isolation.level", "read_committed");
    reads.put("key.deserializer", bytes + "Deserializer");
    reads.put("value.deserializer", bytes + "Deserializer");
    Properties writes = new Properties();
    writes.put("bootstrap.servers", arguments[0]);
    writes.put("transactional.id", arguments[1] + ".java");
    writes.put("key.serializer", bytes + "Serializer");
    writes.put("value.serializer", bytes + "Serializer");
    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reads);
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(writes)) {
      consumer.subscribe(List.of(arguments[2]));
      while (consumer.assignment().isEmpty()) {
        consumer.poll(Duration.ofMillis(100));
      }
      producer.initTransactions();
      long[] offsets = {5, 9, 7};
      for (int number = 0; number < offsets.length; number++) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(arguments[3], ("java-" + offsets[number]).getBytes()));
        producer.sendOffsetsToTransaction(
            Map.of(place, new OffsetAndMetadata(offsets[number])), consumer.groupMetadata());
        if (number == 1) {
          producer.abortTransaction();
        } else {
          producer.commitTransaction();
        }
        System.out.println(consumer.committed(Set.of(place)).get(place).offset());
      }
    }
  }
}
