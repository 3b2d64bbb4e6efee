import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;

/**
 * One group member by Kafka's own client: arguments are address, group, topic, client id, assignor and instance id (or
 * nothing), SESSION_MS, METADATA_MS and REQUEST_MS in the environment its session timeout, how old what it knows of the
 * cluster may be, and how long it waits for an answer. It speaks as tests/support/kafka/worker.py does, and leaves when its input ends.
 */
public class GroupWorker {
  static volatile boolean going = true;

  public static void main(String[] arguments) throws Exception {
    Thread waiting = new Thread(GroupWorker::waitForEnd);
    waiting.setDaemon(true);
    waiting.start();
    String assigned = "";
    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(arguments))) {
      consumer.subscribe(List.of(arguments[2]));
      while (going) {
        List<String> read = new ArrayList<>();
        consumer.poll(Duration.ofMillis(200)).forEach(r -> read.add("[" + r.partition() + ", " + r.offset() + "]"));
        String now = consumer.assignment().stream().map(place -> place.partition()).sorted().map(String::valueOf)
            .collect(Collectors.joining(", "));
        if (!now.equals(assigned)) {
          assigned = now;
          System.out.println("{\"assigned\": [" + now + "]}");
        }
        if (read.isEmpty()) continue;
        System.out.println("{\"read\": [" + String.join(", ", read) + "]}");
        try {
          consumer.commitSync();
        } catch (CommitFailedException | RebalanceInProgressException | RetriableException movesOn) {
          // The next commit says it again, if the partition is still ours.
        }
      }
    } catch (FencedInstanceIdException fenced) {
      System.out.println("{\"fatal\": \"FENCED_INSTANCE_ID\"}");
      return;
    } catch (KafkaException failure) {
      System.out.println("{\"fatal\": \"" + failure.getClass().getSimpleName() + "\"}");
      return;
    }
    System.out.println("{\"left\": true}");
  }

  static Properties settings(String[] arguments) {
    Properties told = new Properties();
    told.put("bootstrap.servers", arguments[0]);
    told.put("group.id", arguments[1]);
    told.put("client.id", arguments[3]);
    told.put("auto.offset.reset", "earliest");
    told.put("enable.auto.commit", "false");
    told.put("metadata.max.age.ms", System.getenv().getOrDefault("METADATA_MS", "300000"));
    told.put("request.timeout.ms", System.getenv().getOrDefault("REQUEST_MS", "30000"));
    String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
    told.put("key.deserializer", bytes);
    told.put("value.deserializer", bytes);
    switch (arguments[4]) {
      case "consumer" -> told.put("group.protocol", "consumer");
      case "range" -> classic(told, "RangeAssignor");
      case "cooperative-sticky" -> classic(told, "CooperativeStickyAssignor");
      default -> throw new IllegalArgumentException(arguments[4]);
    }
    if (arguments.length > 5) {
      told.put("group.instance.id", arguments[5]);
      told.put("session.timeout.ms", "30000"); // a new virtual machine takes its time
    }
    return told;
  }

  static void classic(Properties told, String assignor) {
    told.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
    told.put("session.timeout.ms", System.getenv().getOrDefault("SESSION_MS", "3000"));
    told.put("heartbeat.interval.ms", "300");
  }

  static void waitForEnd() {
    try {
      while (System.in.read() >= 0) {}
    } catch (java.io.IOException gone) {
      // The parent is gone, which says the same.
    }
    going = false;
  }
}
