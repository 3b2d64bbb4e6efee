import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's own command line tools, one after the other in one virtual machine: each argument "--then" ends the words of
 * one tool, the first of which is its class. Before what a tool prints stands "== " and the class, after it its exit code.
 */
public class Tools {
  static Integer code; // the first that a tool ends with: some catch what is thrown then, and end again

  static class Ended extends RuntimeException {
    Ended() {
      super(null, null, false, false);
    }
  }

  public static void main(String[] arguments) throws Exception {
    Exit.setExitProcedure((status, message) -> {
      code = code == null ? Integer.valueOf(status) : code;
      throw new Ended();
    });
    List<String> words = new ArrayList<>();
    for (String word : arguments) {
      if (!word.equals("--then")) {
        words.add(word);
        continue;
      }
      System.out.println("== " + words.get(0).replaceAll(".*\\.", ""));
      System.out.println("-- " + run(words.get(0), words.subList(1, words.size()).toArray(new String[0])));
      words.clear();
    }
    System.exit(0);
  }

  static int run(String tool, String[] words) throws Exception {
    code = null;
    try {
      Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) words);
    } catch (java.lang.reflect.InvocationTargetException failure) {
      if (!(failure.getCause() instanceof Ended)) throw failure;
    }
    return code == null ? 0 : code;
  }
}
