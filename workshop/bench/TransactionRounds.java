import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TopicExistsException;

/**
 * Times transactions of Kafka's own producer, and the same records without one, in turns. The arguments are address, topic
 * and rounds. For 1 and for 100 records it prints their number and how many times as long a transaction takes: medians.
 */
public class TransactionRounds {
  static final int PARTITIONS = 2;
  static final byte[] VALUE = new byte[100];

  public static void main(String[] arguments) throws Exception {
    String address = arguments[0], topic = arguments[1];
    int rounds = Integer.parseInt(arguments[2]);
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", (Object) address))) {
      admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
    } catch (ExecutionException failed) {
      if (!(failed.getCause() instanceof TopicExistsException)) throw failed;
    }
    try (KafkaProducer<byte[], byte[]> transactional = producer(address, "rounds");
        KafkaProducer<byte[], byte[]> plain = producer(address, null)) {
      transactional.initTransactions();
      for (int records : new int[] {1, 100}) {
        for (int number = 0; number < rounds / 4 + 1; number++) {
          transact(transactional, topic, records);
          send(plain, topic, records);
        }
        List<Long> ours = new ArrayList<>(), theirs = new ArrayList<>();
        for (int number = 0; number < rounds; number++) {
          long began = System.nanoTime();
          transact(transactional, topic, records);
          long between = System.nanoTime();
          send(plain, topic, records);
          ours.add(between - began);
          theirs.add(System.nanoTime() - between);
        }
        System.out.println(records + " " + (double) median(ours) / median(theirs));
      }
    }
  }

  static KafkaProducer<byte[], byte[]> producer(String address, String id) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", address);
    settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
    settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
    settings.put("linger.ms", "0");
    if (id != null) settings.put("transactional.id", id);
    return new KafkaProducer<>(settings);
  }

  static void transact(KafkaProducer<byte[], byte[]> producer, String topic, int records) throws Exception {
    producer.beginTransaction();
    send(producer, topic, records);
    producer.commitTransaction();
  }

  static void send(KafkaProducer<byte[], byte[]> producer, String topic, int records) throws Exception {
    List<Future<?>> sent = new ArrayList<>();
    for (int number = 0; number < records; number++) {
      sent.add(producer.send(new ProducerRecord<>(topic, records == 1 ? 0 : number % PARTITIONS, null, VALUE)));
    }
    producer.flush();
    for (Future<?> each : sent) each.get();
  }

  static long median(List<Long> values) {
    Collections.sort(values);
    return values.get(values.size() / 2);
  }
}
