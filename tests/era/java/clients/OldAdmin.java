import java.util.Collection;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.Resource;
import org.apache.kafka.common.resource.ResourceType;

/** All that an AdminClient of 0.11 or 1.1 can do, a line each: what it was answered, or the name of the error. */
public final class OldAdmin {
    private interface Call {
        Object answer() throws Exception;
    }

    private static void say(String what, Call call) throws Exception {
        try {
            Object answer = call.answer();
            System.out.println(what + ": " + (answer == null ? "done" : answer));
        } catch (ExecutionException error) {
            System.out.println(what + ": " + error.getCause().getClass().getSimpleName());
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties told = new Properties();
        told.put("bootstrap.servers", arguments[0]);
        String topic = arguments[1];
        AdminClient admin = AdminClient.create(told);
        Collection<String> named = Collections.singleton(topic);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> kept = Collections.singletonMap("retention.ms", "60000");
        NewTopic made = new NewTopic(topic, 2, (short) 1).configs(kept);
        say("nodes", () -> admin.describeCluster().nodes().get().size());
        say("create", () -> admin.createTopics(Collections.singleton(made)).all().get());
        say("create again", () -> admin.createTopics(Collections.singleton(made)).all().get());
        say("listed", () -> admin.listTopics().names().get().contains(topic));
        say("partitions", () -> admin.describeTopics(named).all().get().get(topic).partitions().size());
        Call retention = () ->
            admin.describeConfigs(Collections.singleton(resource)).all().get().get(resource).get("retention.ms").value();
        say("set", retention);
        Config longer = new Config(Collections.singleton(new ConfigEntry("retention.ms", "70000")));
        say("alter", () -> admin.alterConfigs(Collections.singletonMap(resource, longer)).all().get());
        say("set", retention);
        AclBinding right = new AclBinding(
            new Resource(ResourceType.TOPIC, topic),
            new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
        Call rights = () -> admin.describeAcls(AclBindingFilter.ANY).values().get().size();
        say("allow", () -> admin.createAcls(Collections.singleton(right)).all().get());
        say("rights", rights);
        say("forbid", () -> admin.deleteAcls(Collections.singleton(right.toFilter())).all().get().size());
        say("rights", rights);
        say("delete", () -> admin.deleteTopics(named).all().get());
        say("delete again", () -> admin.deleteTopics(named).all().get());
        admin.close(5, TimeUnit.SECONDS);
    }
}
