import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;

/**
 * What a ZooKeeper consumer of an old release would claim, by that release's own classes.
 *
 * <p>Each line of standard input is: zookeeper.connect, strategy, group, consumer id, whether internal topics are
 * excluded, with tabs in between. Each line of output is the plan as Scala prints it, or "error" and why. All by reflection: assign returned a
 * member's own share in 0.8.2, and everybody's from 0.9 on.
 */
public final class OldPlans {
    public static void main(String[] arguments) throws Exception {
        Constructor<?> contexts = Class.forName("kafka.consumer.AssignmentContext").getConstructors()[0];
        Map<String, Object> sessions = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] asked = line.split("\t");
            try {
                if (!sessions.containsKey(asked[0])) {
                    sessions.put(asked[0], connect(asked[0], contexts.getParameterTypes()[3]));
                }
                Object zookeeper = sessions.get(asked[0]);
                Object context = contexts.newInstance(asked[2], asked[3], Boolean.valueOf(asked[4]), zookeeper);
                System.out.println(String.valueOf(plan(asked[1], context, asked[3])).replace('\n', ' '));
            } catch (InvocationTargetException error) {
                System.out.println("error " + String.valueOf(error.getCause()).replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private static Object plan(String strategy, Object context, String consumer) throws Exception {
        Object assignors = Class.forName("kafka.consumer.PartitionAssignor$").getField("MODULE$").get(null);
        Object assignor = assignors.getClass().getMethod("createInstance", String.class).invoke(assignors, strategy);
        Method assign = Class.forName("kafka.consumer.PartitionAssignor").getMethod("assign", context.getClass());
        Object planned = assign.invoke(assignor, context);
        if (planned.getClass().getName().equals("kafka.utils.Pool")) {
            return planned.getClass().getMethod("get", Object.class).invoke(planned, consumer);
        }
        return planned;
    }

    private static Object connect(String address, Class<?> wanted) throws Exception {
        if (wanted.getSimpleName().equals("ZkUtils")) {
            return wanted.getMethod("apply", String.class, int.class, int.class, boolean.class)
                    .invoke(null, address, 30000, 30000, false);
        }
        Class<?> serializers = Class.forName("org.I0Itec.zkclient.serialize.ZkSerializer");
        Object strings = Class.forName("kafka.utils.ZKStringSerializer$").getField("MODULE$").get(null);
        return wanted.getConstructor(String.class, int.class, int.class, serializers)
                .newInstance(address, 30000, 30000, strings);
    }
}
