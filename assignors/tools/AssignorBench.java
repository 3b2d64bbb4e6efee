// The JVM's side of `muster bench assignors --jar`: times Kafka's own assignors on the groups that Python describes.
// One request a line on standard input: ASSIGNOR MEMBERS TOPICS PARTITIONS EVENT; one line of nanoseconds as the answer.
// With _bytes behind the event the time is what a leader takes: subscriptions are read, shares are written.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class AssignorBench {
    /** said: the members' subscriptions as bytes, null where they are handed over as they are. */
    record Group(Cluster cluster, Map<String, Subscription> members, Map<String, ByteBuffer> said) {}

    static final String BYTES = "_bytes";

    static final Map<String, Group> GROUPS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            Group group = GROUPS.computeIfAbsent(line, key -> group(words));
            ConsumerPartitionAssignor assignor = assignor(words[0]);
            if (group.said != null) {
                System.out.println(fromBytesToBytes(assignor, group));
                continue;
            }
            // Assignors keep what they are given, so each timed call gets subscriptions of its own.
            GroupSubscription asked = new GroupSubscription(new HashMap<>(group.members));
            long start = System.nanoTime();
            assignor.assign(group.cluster, asked);
            System.out.println(System.nanoTime() - start);
        }
    }

    static long fromBytesToBytes(ConsumerPartitionAssignor assignor, Group group) {
        long start = System.nanoTime();
        Map<String, Subscription> members = new HashMap<>();
        group.said.forEach((who, blob) ->
                members.put(who, ConsumerProtocol.deserializeSubscription(blob.duplicate())));
        Map<String, ByteBuffer> shares = new HashMap<>();
        assignor.assign(group.cluster, new GroupSubscription(members)).groupAssignment()
                .forEach((who, share) -> shares.put(who, ConsumerProtocol.serializeAssignment(share)));
        return System.nanoTime() - start;
    }

    static ConsumerPartitionAssignor assignor(String word) {
        return switch (word) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(word);
        };
    }

    static Group group(String[] words) {
        int members = Integer.parseInt(words[1]);
        int topics = Integer.parseInt(words[2]);
        int partitions = Integer.parseInt(words[3]);
        List<String> names = new ArrayList<>();
        List<PartitionInfo> infos = new ArrayList<>();
        Node node = new Node(0, "localhost", 9092);
        Node[] replicas = {node};
        for (int topic = 0; topic < topics; topic++) {
            names.add(String.format("topic-%04d", topic));
            for (int partition = 0; partition < partitions; partition++) {
                infos.add(new PartitionInfo(names.get(topic), partition, node, replicas, replicas));
            }
        }
        Cluster cluster = new Cluster("c", List.of(node), infos, Collections.emptySet(), Collections.emptySet());
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (int member = 0; member < members; member++) {
            subscriptions.put(String.format("member-%05d", member), new Subscription(names));
        }
        boolean asBytes = words[4].endsWith(BYTES);
        String event = asBytes ? words[4].substring(0, words[4].length() - BYTES.length()) : words[4];
        Map<String, Subscription> told = after(words[0], String.join(" ", event.split("_")), cluster, subscriptions, names);
        if (!asBytes) {
            return new Group(cluster, told, null);
        }
        Map<String, ByteBuffer> said = new HashMap<>();
        told.forEach((who, subscription) -> said.put(who, ConsumerProtocol.serializeSubscription(subscription)));
        return new Group(cluster, told, said);
    }

    static Map<String, Subscription> after(
            String word, String event, Cluster cluster, Map<String, Subscription> fresh, List<String> names) {
        if (event.equals("fresh")) {
            return fresh;
        }
        GroupSubscription asked = new GroupSubscription(new HashMap<>(fresh));
        Map<String, Assignment> shares = assignor(word).assign(cluster, asked).groupAssignment();
        Map<String, Subscription> members = new HashMap<>();
        shares.forEach((member, share) -> members.put(member, owning(word, member, names, share)));
        if (event.equals("one leaves")) {
            members.remove("member-00000");
        } else if (event.equals("one joins")) {
            members.put("newcomer", new Subscription(names));
        }
        return members;
    }

    static Subscription owning(String word, String member, List<String> names, Assignment share) {
        List<TopicPartition> owned = share.partitions();
        if (word.equals("cooperative-sticky")) {
            return new Subscription(names, null, owned, 1, Optional.empty());
        }
        StickyAssignor assignor = new StickyAssignor();
        assignor.onAssignment(share, new ConsumerGroupMetadata("g", 1, member, Optional.empty()));
        ByteBuffer data = assignor.subscriptionUserData(new HashSet<>(names));
        return new Subscription(names, data);
    }
}
