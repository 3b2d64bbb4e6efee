import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;

/**
 * One instance of a Kafka Streams application that only reads: arguments are address, application id, topic and client
 * id. It says what it has read as tests/support/kafka/worker.py does, and closes when its input ends.
 */
public class StreamsWorker {
  public static void main(String[] arguments) throws Exception {
    Properties told = new Properties();
    told.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    told.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
    told.put(StreamsConfig.CLIENT_ID_CONFIG, arguments[3]);
    told.put(StreamsConfig.STATE_DIR_CONFIG, java.nio.file.Files.createTempDirectory("streams").toString());
    told.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    told.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    told.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
    told.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    told.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "3000");
    told.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "300");
    StreamsBuilder builder = new StreamsBuilder();
    builder.<byte[], byte[]>stream(arguments[2]).process(() -> new ContextualProcessor<byte[], byte[], Void, Void>() {
      @Override
      public void process(Record<byte[], byte[]> record) {
        context().recordMetadata().ifPresent(at ->
            System.out.println("{\"read\": [[" + at.partition() + ", " + at.offset() + "]]}"));
      }
    });
    try (KafkaStreams streams = new KafkaStreams(builder.build(), told)) {
      streams.setUncaughtExceptionHandler(failure -> {
        System.out.println("{\"fatal\": \"" + failure.getClass().getSimpleName() + "\"}");
        return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
      });
      streams.start();
      while (System.in.read() >= 0) {}
    }
    System.out.println("{\"left\": true}");
  }
}
