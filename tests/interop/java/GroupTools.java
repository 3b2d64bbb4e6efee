import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * What Kafka's own admin client sees of a group and may do to it, as kafka-ui and kafka-consumer-groups.sh ask it:
 * arguments are address, group, topic and "busy" (it has members, static member "a" among them) or "idle".
 */
public class GroupTools {
  public static void main(String[] arguments) throws Exception {
    String group = arguments[1], topic = arguments[2];
    TopicPartition first = new TopicPartition(topic, 0), second = new TopicPartition(topic, 1);
    Properties told = new Properties();
    told.put("bootstrap.servers", arguments[0]);
    try (Admin admin = Admin.create(told)) {
      say("stable", listed(admin, new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE)), group));
      say("empty", listed(admin, new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY)), group));
      say("classic", listed(admin, new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC)), group));
      ConsumerGroupDescription shown = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
      say("group", shown.groupState() + " " + shown.type() + " " + shown.partitionAssignor() + " " + shown.coordinator().id());
      shown.members().stream().sorted((one, other) -> one.clientId().compareTo(other.clientId())).forEach(member -> say(
          "member", member.clientId() + " " + member.groupInstanceId().orElse("-") + " "
              + member.assignment().topicPartitions().size()));
      say("alter", admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(3))).all());
      say("delete offsets", admin.deleteConsumerGroupOffsets(group, Set.of(second)).all());
      Map<Integer, Long> kept = new TreeMap<>();
      admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
          .forEach((place, position) -> kept.put(place.partition(), position.offset()));
      say("offsets", kept);
      if (arguments[3].equals("busy")) {
        say("delete", admin.deleteConsumerGroups(List.of(group)).all());
        say("remove", admin.removeMembersFromConsumerGroup(group,
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("a")))).all());
        return;
      }
      say("delete", admin.deleteConsumerGroups(List.of(group)).all());
      say("delete", admin.deleteConsumerGroups(List.of(group)).all());
      say("latest", admin.listOffsets(Map.of(first, OffsetSpec.latest())).partitionResult(first).get().offset());
      say("cluster", admin.describeCluster().nodes().get().size());
      say("log dirs", admin.describeLogDirs(List.of(1)).allDescriptions());
      ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
      Collection<AlterConfigOp> change =
          List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "1"), AlterConfigOp.OpType.SET));
      say("alter configs", admin.incrementalAlterConfigs(Map.of(resource, change)).all());
    }
  }

  static boolean listed(Admin admin, ListGroupsOptions options, String group) throws Exception {
    return admin.listGroups(options).all().get().stream().anyMatch(found -> found.groupId().equals(group));
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
