import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;

/**
 * What an old release reads of a broker's registration: each line of standard input is a registration as it lies in
 * ZooKeeper, each line of output the broker as Scala prints it, or "error" and why.
 */
public final class OldBrokers {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            try {
                System.out.println(broker(line));
            } catch (InvocationTargetException error) {
                System.out.println("error " + String.valueOf(error.getCause()).replace('\n', ' '));
            }
        }
    }

    /** From 1.1 on it is the znode's class that reads. */
    private static Object broker(String registration) throws Exception {
        try {
            return call("kafka.cluster.Broker$", "createBroker", String.class, registration);
        } catch (NoSuchMethodException error) {
            return call("kafka.zk.BrokerIdZNode$", "decode", byte[].class, registration.getBytes("UTF-8"));
        }
    }

    private static Object call(String name, String method, Class<?> kind, Object registration) throws Exception {
        Object companion = Class.forName(name).getField("MODULE$").get(null);
        return companion.getClass().getMethod(method, int.class, kind).invoke(companion, 1, registration);
    }
}
