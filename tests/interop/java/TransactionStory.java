import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;

/**
 * Transactions of Kafka's own producer: the arguments are address and topic. It commits, aborts, commits one transaction
 * after another, is fenced, and is timed out and goes on; then it prints what a reader of committed records gets.
 */
public class TransactionStory {
  private static volatile String doing = "making the topic";

  public static void main(String[] arguments) {
    try {
      play(arguments);
    } catch (Throwable why) {  // Java's launcher of sources fails at exceptions of Kafka, which have no stack trace
      System.out.flush();
      System.err.println(why + " (" + doing + ")");
      System.exit(1);
    }
  }

  private static void play(String[] arguments) throws Exception {
    String address = arguments[0], topic = arguments[1];
    Map<String, FinalizedVersionRange> features;
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", (Object) address))) {
      admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
      features = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
      FinalizedVersionRange found = features.get("transaction.version");
      System.out.println("level " + (found == null ? "none" : found.maxVersionLevel()));
    }
    KafkaProducer<byte[], byte[]> first = producer(address, topic + ".java", 60_000);
    doing = "the first transactions";
    first.initTransactions();
    first.beginTransaction();
    send(first, topic, 0, "committed");
    send(first, topic, 1, "committed too");
    first.commitTransaction();
    first.beginTransaction();
    send(first, topic, 0, "aborted");
    first.flush();
    first.abortTransaction();
    first.beginTransaction();
    first.commitTransaction();
    for (int number = 0; number < 200; number++) {
      doing = "round " + number;
      first.beginTransaction();
      send(first, topic, number % 2, doing);
      if (number % 10 == 9) {
        first.abortTransaction();
      } else {
        first.commitTransaction();
      }
    }
    doing = "a second one fences the first";
    first.beginTransaction();
    send(first, topic, 0, "left open");
    first.flush();

    KafkaProducer<byte[], byte[]> second = producer(address, topic + ".java", 60_000);
    second.initTransactions();
    second.beginTransaction();
    send(second, topic, 0, "of the second");
    second.commitTransaction();
    try {
      first.commitTransaction();
      System.out.println("first committed");
    } catch (RuntimeException fenced) {
      System.out.println("first " + fenced.getClass().getSimpleName());
    }
    first.close(Duration.ZERO);
    second.close();

    KafkaProducer<byte[], byte[]> slow = producer(address, topic + ".slow", 3_000);
    doing = "a slow one is timed out";
    slow.initTransactions();
    slow.beginTransaction();
    send(slow, topic, 1, "too slow");
    slow.flush();
    await(address, topic);
    try {
      slow.send(new ProducerRecord<>(topic, 1, null, "too late".getBytes())).get();
      System.out.println("slow sent");
    } catch (ExecutionException late) {
      System.out.println("slow " + late.getCause().getClass().getSimpleName());
    }
    try {
      slow.abortTransaction();
      slow.beginTransaction();
      send(slow, topic, 1, "alive");
      slow.commitTransaction();
      System.out.println("slow is alive");
    } catch (RuntimeException fatal) {
      System.out.println("slow " + fatal.getClass().getSimpleName());
    }
    slow.close(Duration.ZERO);

    for (int number = 0; number < 2; number++) {
      List<String> values = read(address, new TopicPartition(topic, number));
      System.out.println("committed " + number + " " + values.size() + " " + values.get(0) + ", "
          + values.get(values.size() - 1));
    }
  }

  // Before its marker is written, a record of the same epoch is taken, and aborted.
  private static void await(String address, String topic) throws ExecutionException, InterruptedException {
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", (Object) address))) {
      while (!isAborted(admin, topic + ".slow")) {
        Thread.sleep(50);
      }
    }
  }

  private static boolean isAborted(Admin admin, String name) throws ExecutionException, InterruptedException {
    try {
      return admin.listTransactions().all().get().stream().allMatch(
          each -> !each.transactionalId().equals(name) || each.state().toString().equals("CompleteAbort"));
    } catch (ExecutionException failed) {
      if (failed.getCause() instanceof RetriableException) {  // a coordinator that is elsewhere by now
        return false;
      }
      throw failed;
    }
  }

  private static void send(KafkaProducer<byte[], byte[]> producer, String topic, int partition, String value) {
    producer.send(new ProducerRecord<>(topic, partition, null, value.getBytes()));
  }

  private static KafkaProducer<byte[], byte[]> producer(String address, String name, int timeoutMs) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", address);
    settings.put("transactional.id", name);
    settings.put("transaction.timeout.ms", timeoutMs);
    settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
    settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
    return new KafkaProducer<>(settings);
  }

  private static List<String> read(String address, TopicPartition place) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", address);
    settings.put("isolation.level", "read_committed");
    settings.put("auto.offset.reset", "earliest");
    settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
    settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
    List<String> found = new ArrayList<>();
    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
      consumer.assign(List.of(place));
      long end = consumer.endOffsets(List.of(place)).get(place);
      while (consumer.position(place) < end) {
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
          found.add(new String(record.value()));
        }
      }
    }
    return found;
  }
}
