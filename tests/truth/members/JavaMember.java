import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.FencedInstanceIdException;

/** One group member by Kafka's own client. It takes its job and its commands, and speaks, as python_member.py does. */
public class JavaMember {
  static final Duration POLL = Duration.ofMillis(100);

  public static void main(String[] arguments) throws Exception {
    String job = arguments[0];
    ConcurrentLinkedQueue<String> commands = new ConcurrentLinkedQueue<>();
    Thread reading = new Thread(() -> read(commands));
    reading.setDaemon(true);
    reading.start();
    KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(job));
    String pattern = text(job, "pattern");
    if (pattern == null) consumer.subscribe(list(job, "topics")); else consumer.subscribe(Pattern.compile(pattern));
    String told = "";
    boolean polls = true;
    while (true) {
      for (String line; (line = commands.poll()) != null; ) {
        String[] words = line.split(" ", 2);
        switch (words[0]) {
          case "stop-polling" -> polls = false;
          case "resume" -> polls = true;
          case "subscribe" -> consumer.subscribe(List.of(words[1].split(",")));
          case "pattern" -> consumer.subscribe(Pattern.compile(words[1]));
          case "close" -> {
            consumer.close();
            System.out.println("{\"closed\": true}");
            Runtime.getRuntime().halt(0);
          }
        }
      }
      if (!polls) {
        Thread.sleep(POLL.toMillis());
        continue;
      }
      try {
        consumer.poll(POLL);
      } catch (FencedInstanceIdException fenced) {
        System.out.println("{\"fatal\": \"FENCED_INSTANCE_ID\"}");
        Runtime.getRuntime().halt(0);
      }
      String now = consumer.assignment().stream().map(each -> "[\"" + each.topic() + "\", " + each.partition() + "]")
          .sorted().collect(Collectors.joining(", "));
      if (now.equals(told)) continue;
      told = now;
      System.out.println("{\"assigned\": [" + now + "]}");
    }
  }

  static void read(ConcurrentLinkedQueue<String> commands) {
    try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in))) {
      for (String line; (line = input.readLine()) != null && !line.equals("exit"); ) commands.add(line);
    } catch (java.io.IOException gone) {
      // The parent is gone.
    }
    Runtime.getRuntime().halt(0);
  }

  static Properties settings(String job) {
    Properties told = new Properties();
    told.put("bootstrap.servers", text(job, "address"));
    told.put("group.id", text(job, "group"));
    told.put("client.id", text(job, "name"));
    told.put("auto.offset.reset", "earliest");
    told.put("metadata.max.age.ms", number(job, "metadata_ms"));
    told.put("max.poll.interval.ms", number(job, "poll_ms"));
    told.put("reconnect.backoff.max.ms", "500");
    told.put("allow.auto.create.topics", "false");
    // not by default: a commit of a deleted topic's partition would hold up its next join
    boolean commits = Pattern.compile("\"commit_ms\": [1-9]").matcher(job).find();
    told.put("enable.auto.commit", String.valueOf(commits));
    if (commits) told.put("auto.commit.interval.ms", number(job, "commit_ms"));
    String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
    told.put("key.deserializer", bytes);
    told.put("value.deserializer", bytes);
    if (text(job, "instance") != null) told.put("group.instance.id", text(job, "instance"));
    if (text(job, "protocol").equals("consumer")) {
      told.put("group.protocol", "consumer");
      return told;
    }
    told.put("session.timeout.ms", number(job, "session_ms"));
    told.put("heartbeat.interval.ms", number(job, "heartbeat_ms"));
    told.put("partition.assignment.strategy", list(job, "assignors").stream().map(name -> switch (name) {
      case "range" -> "RangeAssignor";
      case "roundrobin" -> "RoundRobinAssignor";
      case "sticky" -> "StickyAssignor";
      case "cooperative-sticky" -> "CooperativeStickyAssignor";
      default -> throw new IllegalArgumentException(name);
    }).map(name -> "org.apache.kafka.clients.consumer." + name).collect(Collectors.joining(",")));
    return told;
  }

  /** Of a JSON object of strings, numbers and lists of strings without escapes; null without such a field. */
  static String text(String job, String field) {
    Matcher found = Pattern.compile("\"" + field + "\": \"([^\"]*)\"").matcher(job);
    return found.find() ? found.group(1) : null;
  }

  static String number(String job, String field) {
    Matcher found = Pattern.compile("\"" + field + "\": ([0-9]+)").matcher(job);
    if (!found.find()) throw new IllegalArgumentException(field);
    return found.group(1);
  }

  static List<String> list(String job, String field) {
    Matcher found = Pattern.compile("\"" + field + "\": \\[([^\\]]*)\\]").matcher(job);
    if (!found.find()) throw new IllegalArgumentException(field);
    List<String> items = new ArrayList<>();
    for (String item : found.group(1).split(",")) items.add(item.strip().replace("\"", ""));
    return items;
  }
}
