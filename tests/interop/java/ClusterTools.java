import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * What Kafka's own admin client does with topics of a cluster, their leaders and their copies, as kafka-topics.sh,
 * kafka-reassign-partitions.sh and kafka-leader-election.sh ask it; the argument is the address of three nodes.
 */
public class ClusterTools {
  public static void main(String[] arguments) throws Exception {
    Properties told = new Properties();
    told.put("bootstrap.servers", arguments[0]);
    try (Admin admin = Admin.create(told)) {
      CreateTopicsResult made = admin.createTopics(List.of(
          new NewTopic("spread", 2, (short) 3),
          new NewTopic("hand", Map.of(0, List.of(1, 2), 1, List.of(2, 3))),
          new NewTopic("four", 1, (short) 4),
          new NewTopic("nobody", Map.of(0, List.of(1, 9)))));
      say("copies", made.replicationFactor("spread").get() + " " + made.numPartitions("hand").get());
      for (String name : List.of("spread", "hand", "four", "nobody")) {
        say(name, made.values().get(name));
      }
      say("grow", admin.createPartitions(Map.of("hand", NewPartitions.increaseTo(3, List.of(List.of(3, 1))))).all());
      say("hand", replicas(admin));

      TopicPartition first = new TopicPartition("hand", 0);
      say("move", admin.alterPartitionReassignments(Map.of(first, to(3, 2))).all());
      until(() -> admin.listPartitionReassignments().reassignments().get().isEmpty());
      until(() -> replicas(admin).get(0).equals(List.of(3, 2)));
      say("hand", replicas(admin));
      say("cancel", admin.alterPartitionReassignments(Map.of(first, Optional.empty())).all());
      say("nowhere", admin.alterPartitionReassignments(Map.of(first, to(9))).all());

      admin.electLeaders(ElectionType.PREFERRED, null).all().get();
      say("elect", admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).all());
      say("unclean", admin.electLeaders(ElectionType.UNCLEAN, Set.of(first)).all());
      say("unknown", admin.electLeaders(ElectionType.PREFERRED, Set.of(new TopicPartition("hand", 7))).all());

      ConfigResource node = new ConfigResource(ConfigResource.Type.BROKER, "2");
      String rate = "leader.replication.throttled.rate";
      say("rate", admin.incrementalAlterConfigs(Map.of(node,
          List.of(new AlterConfigOp(new ConfigEntry(rate, "1000000"), AlterConfigOp.OpType.SET)))).all());
      ConfigEntry set = admin.describeConfigs(List.of(node)).all().get().get(node).get(rate);
      say("rate", set.value() + " " + set.source());
      say("delete", admin.deleteTopics(List.of("hand")).all());
      say("topics", admin.listTopics().names().get());
    }
  }

  interface Sight {
    boolean isTrue() throws Exception;
  }

  static void until(Sight sight) throws Exception {
    while (!sight.isTrue()) {
      Thread.sleep(100);
    }
  }

  static Optional<NewPartitionReassignment> to(Integer... nodes) {
    return Optional.of(new NewPartitionReassignment(List.of(nodes)));
  }

  static Map<Integer, List<Integer>> replicas(Admin admin) throws Exception {
    TopicDescription found = admin.describeTopics(List.of("hand")).allTopicNames().get().get("hand");
    Map<Integer, List<Integer>> shown = new TreeMap<>();
    found.partitions().forEach(part -> shown.put(part.partition(), part.replicas().stream().map(Node::id).toList()));
    return shown;
  }

  static void say(String what, Object value) {
    System.out.println(what + " " + value);
  }

  static void say(String what, Future<?> outcome) throws InterruptedException {
    try {
      outcome.get();
      say(what, (Object) "done");
    } catch (ExecutionException refusal) {
      say(what, (Object) refusal.getCause().getClass().getSimpleName());
    }
  }
}
