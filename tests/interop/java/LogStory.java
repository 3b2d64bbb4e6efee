import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What Kafka's own client makes of the log behind a node: arguments are its address and a topic to make. */
public class LogStory {
  static final int MESSAGES = 2_000;
  static String address;
  static TopicPartition place;

  public static void main(String[] arguments) throws Exception {
    address = arguments[0];
    place = new TopicPartition(arguments[1], 0);
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
      make(admin);
      for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) produce(codec);
      consume();
      look(admin);
      change(admin);
    }
  }

  static void make(Admin admin) throws Exception {
    NewTopic wanted = new NewTopic(place.topic(), 2, (short) 1).configs(Map.of("retention.ms", "86400001"));
    admin.createTopics(List.of(wanted)).all().get();
    var described = admin.describeTopics(List.of(place.topic())).allTopicNames().get().get(place.topic());
    System.out.println("partitions " + described.partitions().size());
    try {
      admin.createTopics(List.of(wanted)).all().get();
    } catch (ExecutionException refusal) {
      System.out.println("again " + refusal.getCause().getClass().getSimpleName());
    }
  }

  /** Idempotent, as it is by default. */
  static void produce(String codec) throws Exception {
    Map<String, Object> told = new HashMap<>(Map.of("bootstrap.servers", address, "compression.type", codec));
    told.put("linger.ms", 5);
    try (var producer = new KafkaProducer<>(told, new ByteArraySerializer(), new ByteArraySerializer())) {
      java.util.concurrent.Future<RecordMetadata> last = null;
      for (int number = 0; number < MESSAGES; number++) {
        last = producer.send(new ProducerRecord<>(place.topic(), 0, null, value(codec, number)));
      }
      System.out.println("produced " + codec + " " + last.get().offset());
    }
  }

  static byte[] value(String codec, int number) {
    return (codec + " " + number + " ").repeat(1 + number % 20).getBytes();
  }

  static void consume() {
    Map<String, Object> told = Map.of("bootstrap.servers", address, "auto.offset.reset", "earliest");
    try (var consumer = new KafkaConsumer<>(told, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.assign(List.of(place));
      long bytes = 0;
      int messages = 0;
      while (messages < 5 * MESSAGES) {
        for (ConsumerRecord<byte[], byte[]> found : consumer.poll(Duration.ofSeconds(1))) {
          bytes += found.value().length;
          messages++;
        }
      }
      System.out.println("consumed " + messages + " " + bytes);
      System.out.println("ends " + consumer.beginningOffsets(List.of(place)).get(place)
          + " " + consumer.endOffsets(List.of(place)).get(place));
      System.out.println("since 1970 " + consumer.offsetsForTimes(Map.of(place, 0L)).get(place).offset());
    }
  }

  static void look(Admin admin) throws Exception {
    ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, place.topic());
    var settings = admin.describeConfigs(List.of(topic)).all().get().get(topic);
    System.out.println("retention " + settings.get("retention.ms").value() + " " + settings.get("retention.ms").source());
    System.out.println("latest " + admin.listOffsets(Map.of(place, OffsetSpec.latest())).all().get().get(place).offset());
  }

  static void change(Admin admin) throws Exception {
    admin.createPartitions(Map.of(place.topic(), NewPartitions.increaseTo(3))).all().get();
    var deleted = admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(10))).lowWatermarks();
    System.out.println("low " + deleted.get(place).get().lowWatermark());
  }
}
