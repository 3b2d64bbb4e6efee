import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.consumer.SimpleConsumer;

/**
 * Commits and fetches a group's position with a SimpleConsumer: version 0 of both requests is about ZooKeeper, version
 * 1 about the log. Arguments: host, port, group, topic, then VERSION=POSITION (commit) or VERSION (fetch).
 */
public final class OldPositions {
    public static void main(String[] arguments) {
        SimpleConsumer consumer = new SimpleConsumer(arguments[0], Integer.parseInt(arguments[1]), 10_000, 65_536, "old");
        TopicAndPartition place = new TopicAndPartition(arguments[3], 0);
        for (String asked : Arrays.asList(arguments).subList(4, arguments.length)) {
            short version = Short.parseShort(asked.substring(0, 1));
            if (asked.length() > 1) {
                Map<TopicAndPartition, OffsetAndMetadata> rows = new HashMap<>();
                rows.put(place, position(Long.parseLong(asked.substring(2))));
                Object code = consumer
                    .commitOffsets(new OffsetCommitRequest(arguments[2], rows, 1, "old", version))
                    .errors()
                    .get(place);
                System.out.println("commit " + version + " " + code);
            } else {
                OffsetMetadataAndError found = consumer
                    .fetchOffsets(new OffsetFetchRequest(arguments[2], Arrays.asList(place), version, 1, "old"))
                    .offsets()
                    .get(place);
                System.out.println("fetch " + version + " " + found.offset() + " " + found.error());
            }
        }
        consumer.close();
    }

    private static OffsetAndMetadata position(long offset) {
        return kafka.common.OffsetAndMetadata$.MODULE$.apply(offset, "", -1L);
    }
}
