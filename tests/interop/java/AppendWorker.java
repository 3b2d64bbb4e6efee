import java.io.FileOutputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.TimeoutException;

/** The worker of list-append histories by Kafka's own client: SERVERS TOPIC WORKER LIFE FILE, until its input ends. */
public class AppendWorker {
  static final int PARTITIONS = 6;
  static final int TIMEOUT_MS = 3_000;
  static final int ABORTED_IN = 8;
  static final long LIFE = 1_000_000;
  static volatile boolean ended;

  static String topic, worker;
  static int life;
  static PrintStream told;
  static KafkaProducer<byte[], byte[]> producer;
  static KafkaConsumer<byte[], byte[]> consumer;

  public static void main(String[] arguments) throws Exception {
    String servers = arguments[0];
    topic = arguments[1];
    worker = arguments[2];
    life = Integer.parseInt(arguments[3]);
    told = new PrintStream(new FileOutputStream(arguments[4], true), true);
    Thread watch = new Thread(() -> {
      try {
        while (System.in.read() >= 0) {}
      } catch (java.io.IOException gone) {
        // as ended as it gets
      }
      ended = true;
    });
    watch.setDaemon(true);
    watch.start();
    Properties settings = new Properties();
    settings.put("bootstrap.servers", servers);
    settings.put("reconnect.backoff.max.ms", "200");
    settings.put("max.block.ms", "20000");
    settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
    settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
    settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
    settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
    Properties reading = new Properties();
    reading.putAll(settings);
    reading.put("group.id", topic + "." + worker);
    reading.put("isolation.level", "read_committed");
    reading.put("enable.auto.commit", "false");
    settings.put("transactional.id", topic + "." + worker);
    settings.put("transaction.timeout.ms", TIMEOUT_MS);
    producer = new KafkaProducer<>(settings);
    consumer = new KafkaConsumer<>(reading);
    List<TopicPartition> places = new ArrayList<>();
    for (int number = 0; number < PARTITIONS; number++) {
      places.add(new TopicPartition(topic, number));
    }
    consumer.assign(places);
    consumer.seekToBeginning(places);
    again(producer::initTransactions);
    Random random = new Random((worker + life).hashCode());
    try {
      for (int number = 1; !ended; number++) {
        String name = worker + "." + life + "." + number;
        try {
          transaction(name, number, random);
        } catch (ProducerFencedException | InvalidProducerEpochException | OutOfOrderSequenceException error) {
          abort(name);
        } catch (KafkaException error) {
          abort(name);
        }
      }
    } catch (KafkaException error) {
      System.out.println(worker + "." + life + " ends: " + error);
      System.out.flush();
      Runtime.getRuntime().halt(3);
    }
    Runtime.getRuntime().halt(0);
  }

  static void transaction(String name, int number, Random random) {
    producer.beginTransaction();
    StringBuilder shown = new StringBuilder();
    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(20))) {
      shown.append(shown.length() == 0 ? "" : ",").append('[').append(record.partition()).append(',')
          .append(record.offset()).append(",\"").append(new String(record.value())).append("\"]");
    }
    if (shown.length() > 0) {
      tell(name, "\"reads\":[" + shown + "]");
    }
    int count = 1 + random.nextInt(4);
    int sum = 0;
    StringBuilder appends = new StringBuilder();
    List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
    for (int index = 0; index < count; index++) {
      int amount = index == count - 1 ? -sum : random.nextInt(199) - 99;
      sum += amount;
      String value = name + ":" + index + ":" + amount;
      int partition = random.nextInt(PARTITIONS);
      appends.append(index == 0 ? "" : ",").append('[').append(partition).append(",\"").append(value).append("\"]");
      records.add(new ProducerRecord<>(topic, partition, null, value.getBytes()));
    }
    long position = number + LIFE * life;
    tell(name, "\"appends\":[" + appends + "],\"position\":" + position);
    for (ProducerRecord<byte[], byte[]> record : records) {
      producer.send(record);
    }
    producer.sendOffsetsToTransaction(
        Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(position)), consumer.groupMetadata());
    if (random.nextInt(ABORTED_IN) == 0) {
      producer.flush();
      abort(name);
      return;
    }
    again(producer::commitTransaction);
    tell(name, "\"end\":\"committed\"");
  }

  static void abort(String name) {
    again(producer::abortTransaction);
    tell(name, "\"end\":\"aborted\"");
  }

  /** A call that timed out is made again, as the client's own documentation asks. */
  static void again(Runnable call) {
    while (true) {
      try {
        call.run();
        return;
      } catch (TimeoutException slow) {
        // its outcome is not known
      }
    }
  }

  static void tell(String name, String row) {
    told.println("{\"txn\":\"" + name + "\"," + row + "}");
  }
}
