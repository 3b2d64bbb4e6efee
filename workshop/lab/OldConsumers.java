// java -cp JARS OldConsumers.java ZOOKEEPER GROUP TOPIC SESSION_MS: ZooKeeper consumers of Kafka 0.8 to 1.1, many in one JVM.
//
// Each line on the input: "join N" starts so many, "leave" shuts the last one down; it is answered by a line "done". The
// end of the input ends the JVM at once, and its sessions by their timeout.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.javaapi.consumer.ConsumerConnector;

public class OldConsumers {
    public static void main(String[] given) throws Exception {
        List<ConsumerConnector> living = new ArrayList<>();
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("join")) {
                List<Future<?>> starting = new ArrayList<>();
                for (int left = Integer.parseInt(words[1]); left > 0; left--) {
                    ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(properties(given)));
                    living.add(connector);
                    Map<String, Integer> streams = new HashMap<>();
                    streams.put(given[2], 1);
                    starting.add(threads.submit(() -> connector.createMessageStreams(streams)));
                }
                for (Future<?> each : starting) {
                    each.get();
                }
            } else {
                living.remove(living.size() - 1).shutdown();
            }
            System.out.println("done");
        }
        Runtime.getRuntime().halt(0);
    }

    private static Properties properties(String[] given) {
        Properties said = new Properties();
        said.put("zookeeper.connect", given[0]);
        said.put("group.id", given[1]);
        said.put("zookeeper.session.timeout.ms", given[3]);
        said.put("rebalance.max.retries", "20");
        said.put("rebalance.backoff.ms", "2000");
        return said;
    }
}
