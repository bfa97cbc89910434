import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Kafka's side of the benchmarks: its own storage classes, with the real clock and a real scheduler.
 *
 * Protocol: one request per line on stdin, one reply per line on stdout, both JSON.
 *     {"op": NAME, argument...}
 *     {"ok": value} or {"error": text}
 * The end of stdin ends the process.
 */
public final class Bench {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, Command> commands = new LinkedHashMap<>();

    private interface Command {
        Object run(JsonNode request) throws Exception;
    }

    private Bench() {
        Reads reads = new Reads();
        Directories directories = new Directories();
        commands.put("ping", request -> null);
        commands.put("recover", Recoveries::recover);
        commands.put("append", Appends::append);
        commands.put("read_open", reads::open);
        commands.put("read", reads::read);
        commands.put("read_close", reads::close);
        commands.put("clean", Cleanings::clean);
        commands.put("directory_open", directories::open);
        commands.put("directory_close", directories::close);
    }

    private Map<String, Object> answer(String line) {
        try {
            JsonNode request = JSON.readTree(line);
            return Json.object("ok", commands.get(request.get("op").asText()).run(request));
        } catch (Throwable thrown) {
            StringWriter trace = new StringWriter();
            thrown.printStackTrace(new PrintWriter(trace));
            return Json.object("error", trace.toString());
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream replies = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Bench bench = new Bench();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            replies.print(JSON.writeValueAsString(bench.answer(line)) + "\n");
            replies.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
