import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.Map;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractRequestResponse;
import org.apache.kafka.common.requests.CreateTopicsRequest;
import org.apache.kafka.common.requests.CreateTopicsResponse;
import org.apache.kafka.common.requests.DeleteTopicsRequest;
import org.apache.kafka.common.requests.DeleteTopicsResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;

/**
 * Creates topics with versions 0 and 1 of CreateTopics, as clients of 0.10 had them: its AdminClient knows groups only,
 * and Kafka Streams sent these by itself. Arguments: host, port. A line for each answer.
 */
public final class OldTopics {
    private final DataInputStream in;
    private final DataOutputStream out;
    private int number;

    private OldTopics(Socket socket) throws Exception {
        in = new DataInputStream(socket.getInputStream());
        out = new DataOutputStream(socket.getOutputStream());
    }

    public static void main(String[] arguments) throws Exception {
        try (Socket socket = new Socket(arguments[0], Integer.parseInt(arguments[1]))) {
            socket.setSoTimeout(30_000);
            OldTopics client = new OldTopics(socket);
            client.create(0, "made-by-0", 2, false);
            client.create(0, "made-by-0", 2, false);
            client.create(1, "not-made", 2, true);
            client.create(1, "made-by-1", 3, false);
            client.create(1, "made-by-1", 3, true);
            client.create(1, "without", 0, false);
            client.delete("made-by-0", "made-by-1", "not-made");
        }
    }

    private void create(int version, String topic, int partitions, boolean onlyValidate) throws Exception {
        Map<String, String> kept = Collections.singletonMap("retention.ms", "60000");
        CreateTopicsRequest.TopicDetails wanted = new CreateTopicsRequest.TopicDetails(partitions, (short) 1, kept);
        ByteBuffer answer = ask(
            ApiKeys.CREATE_TOPICS,
            version,
            new CreateTopicsRequest.Builder(Collections.singletonMap(topic, wanted), 10_000, onlyValidate)
                .setVersion((short) version)
                .build());
        CreateTopicsResponse.Error error = CreateTopicsResponse.parse(answer, version).errors().get(topic);
        String said = error.message() == null ? "" : ", and says why";
        System.out.println("create " + version + " " + topic + ": " + error.error() + said);
    }

    private void delete(String... topics) throws Exception {
        ByteBuffer answer = ask(
            ApiKeys.DELETE_TOPICS, 0, new DeleteTopicsRequest.Builder(new HashSet<>(Arrays.asList(topics)), 10_000).build());
        Map<String, ?> errors = DeleteTopicsResponse.parse(answer, 0).errors();
        for (String topic : topics) {
            System.out.println("delete 0 " + topic + ": " + errors.get(topic));
        }
    }

    private ByteBuffer ask(ApiKeys api, int version, AbstractRequest request) throws Exception {
        ByteBuffer data = AbstractRequestResponse.serialize(
            new RequestHeader(api.id, (short) version, "old", ++number), request);
        out.writeInt(data.remaining());
        out.write(data.array(), data.position(), data.remaining());
        byte[] answer = new byte[in.readInt()];
        in.readFully(answer);
        ByteBuffer buffer = ByteBuffer.wrap(answer);
        if (ResponseHeader.parse(buffer).correlationId() != number) {
            throw new IllegalStateException("the answer to another request");
        }
        return buffer;
    }
}
