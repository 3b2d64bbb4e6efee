// Writes what Kafka's own classes make of the messages in the standard input, one JSON object a line: to run once.
// java -cp 'kafka-clients-3.9.1.jar:jackson-databind.jar:jackson-core.jar:jackson-annotations.jar:slf4j-api.jar' \
//      Vectors.java < said.jsonl > nodes.jsonl
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

public class Vectors {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        java.io.PrintStream out = new java.io.PrintStream(System.out, true, "UTF-8");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode vector = (ObjectNode) mapper.readTree(line);
            short version = (short) vector.get("version").asInt();
            String data = "org.apache.kafka.common.message." + vector.get("message").asText() + "Data";
            Message message = (Message) Class.forName(data + "JsonConverter")
                .getMethod("read", JsonNode.class, short.class).invoke(null, vector.get("says"), version);
            ByteBuffer bytes = MessageUtil.toByteBuffer(message, version);
            byte[] raw = new byte[bytes.remaining()];
            bytes.get(raw);
            vector.put("bytes", HexFormat.of().formatHex(raw));
            out.println(mapper.writeValueAsString(vector));
        }
    }
}
