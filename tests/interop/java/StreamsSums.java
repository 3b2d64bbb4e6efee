import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * One instance of a Kafka Streams application with processing.guarantee=exactly_once_v2 that has a running sum for each
 * key, and writes each new one: arguments are address, application id, the topic that is read and the one that is
 * written, and client id. It says when it cannot go on, and closes when its input ends.
 */
public class StreamsSums {
  public static void main(String[] arguments) throws Exception {
    Properties told = new Properties();
    told.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    told.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
    told.put(StreamsConfig.CLIENT_ID_CONFIG, arguments[4]);
    told.put(StreamsConfig.STATE_DIR_CONFIG, java.nio.file.Files.createTempDirectory("streams").toString());
    told.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    told.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    told.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    told.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "1000");
    // Each record makes one sum that is written: nothing is held back to be joined.
    told.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
    told.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    told.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
    told.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "300");
    told.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), "5000");
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream(arguments[2])
        .groupByKey()
        .reduce(
            (sum, next) -> Long.toString(Long.parseLong(sum) + Long.parseLong(next)),
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("sums"))
        .toStream()
        .to(arguments[3]);
    try (KafkaStreams streams = new KafkaStreams(builder.build(), told)) {
      streams.setUncaughtExceptionHandler(failure -> {
        System.err.println(failure);
        System.out.println("{\"fatal\": \"" + failure.getClass().getSimpleName() + "\"}");
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
      });
      streams.start();
      while (System.in.read() >= 0) {}
    }
    System.out.println("{\"left\": true}");
  }
}
