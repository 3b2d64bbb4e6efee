import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * A producer by Kafka's own client: arguments are address, topic and partitions. It speaks as
 * tests/support/kafka/producing.py does.
 */
public class ProduceWorker {
  public static void main(String[] arguments) throws Exception {
    int partitions = Integer.parseInt(arguments[2]);
    Properties told = new Properties();
    told.put("bootstrap.servers", arguments[0]);
    told.put("linger.ms", "5");
    String bytes = "org.apache.kafka.common.serialization.ByteArraySerializer";
    told.put("key.serializer", bytes);
    told.put("value.serializer", bytes);
    told.put("request.timeout.ms", "5000");
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(told)) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        int number = Integer.parseInt(line.trim());
        byte[] value = String.valueOf(number).getBytes(StandardCharsets.UTF_8);
        producer.send(new ProducerRecord<>(arguments[1], number % partitions, null, value), (where, failure) -> {
          if (failure == null) {
            System.out.println("[" + number + ", " + where.partition() + ", " + where.offset() + "]");
          }
        });
      }
    }
  }
}
