// Writes what Kafka 1.1.1 makes of message sets of magic 0 and 1 that a producer sends, one JSON object a line: to run once.
// java -cp 'DIRECTORY/*' UpConversion.java > up_conversion.jsonl
// with the jars of org.apache.kafka:kafka_2.12:1.1.1 and what they need in the directory.
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import kafka.common.LongRef;
import kafka.log.LogValidator$;
import kafka.message.CompressionCodec;
import kafka.message.CompressionCodec$;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Time;

public class UpConversion {
  static final String DIGITS = "0123456789abcdef";

  public static void main(String[] arguments) throws Exception {
    Random random = new Random(11);
    for (byte magic = 0; magic < 2; magic++) {
      for (CompressionType codec : List.of(
          CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4)) {
        for (int count : new int[] {1, 2, 3, 40}) {
          for (int sets = 1; sets < 3; sets++) {
            write(magic, codec, count, sets, random);
          }
        }
      }
    }
  }

  static void write(byte magic, CompressionType codec, int count, int sets, Random random) {
    List<ByteBuffer> parts = new ArrayList<>();
    int size = 0;
    for (int set = 0; set < sets; set++) {
      ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
      MemoryRecordsBuilder builder =
          MemoryRecords.builder(buffer, magic, codec, TimestampType.CREATE_TIME, 0L);
      for (int number = 0; number < count; number++) {
        byte[] key = number % 3 == 1 ? null : bytes("key " + random.nextInt(50));
        byte[] value = number % 5 == 2 ? null : bytes("value ".repeat(random.nextInt(6)) + number);
        builder.append(magic == 0 ? -1L : 1_400_000_000_000L + random.nextInt(100_000), key, value);
      }
      ByteBuffer part = builder.build().buffer();
      parts.add(part);
      size += part.remaining();
    }
    ByteBuffer whole = ByteBuffer.allocate(size);
    parts.forEach(whole::put);
    whole.flip();
    String said = hex(whole);
    CompressionCodec source = CompressionCodec$.MODULE$.getCompressionCodec(codec.id);
    MemoryRecords converted = LogValidator$.MODULE$.validateMessagesAndAssignOffsets(
        MemoryRecords.readableRecords(whole), new LongRef(0), Time.SYSTEM, 1_500_000_000_000L, source, source, false,
        (byte) 2, TimestampType.CREATE_TIME, Long.MAX_VALUE, -1, true).validatedRecords();
    System.out.println("{\"magic\":" + magic + ",\"codec\":\"" + codec.name + "\",\"messages\":" + count * sets
        + ",\"set\":\"" + said + "\",\"batch\":\"" + hex(converted.buffer().duplicate()) + "\"}");
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static String hex(ByteBuffer buffer) {
    StringBuilder out = new StringBuilder();
    for (int at = buffer.position(); at < buffer.limit(); at++) {
      out.append(DIGITS.charAt(buffer.get(at) >> 4 & 15)).append(DIGITS.charAt(buffer.get(at) & 15));
    }
    return out.toString();
  }
}
