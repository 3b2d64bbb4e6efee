import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** How Kafka's own client logs in over TLS: a node's address, a CA's file, mechanism, user, password, and a topic. */
public class LoginStory {
    public static void main(String[] given) throws Exception {
        String module = given[2].equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("security.protocol", "SASL_SSL");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", given[1]);
        settings.put("sasl.mechanism", given[2]);
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security." + module
            + " required username=\"" + given[3] + "\" password=\"" + given[4] + "\";");
        settings.put("max.block.ms", "20000");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            System.out.println("produced " + producer.send(new ProducerRecord<>(given[5], given[2])).get().topic());
        } catch (ExecutionException refused) {
            System.out.println("refused " + refused.getCause().getClass().getSimpleName());
        } catch (RuntimeException refused) {
            System.out.println("refused " + refused.getClass().getSimpleName());
        }
    }
}
