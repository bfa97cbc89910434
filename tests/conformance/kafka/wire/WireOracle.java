import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Kafka's own generated message classes, driven by a test.
 *
 * Protocol: one request per line on stdin, one reply per line on stdout, both JSON.
 *     {"op": "apis"}                                  every request of a ZooKeeper-mode broker, with its header versions
 *     {"op": "rewrite", name, read, write, bytes}     read in one version, written in another; "bytes" and "json"
 *     {"op": "default", name, write}                  a message of defaults
 *     {"ok": value} or {"error": {exception, message}}
 */
public final class WireOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String[] HOMES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "kafka.internals.generated.%s",
    };
    private static final Map<String, Class<?>> CLASSES = new LinkedHashMap<>();

    private static Class<?> home(String name) throws ClassNotFoundException {
        for (String home : HOMES) {
            try {
                return Class.forName(String.format(home, name));
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static Message fresh(String name) throws Exception {
        if (!CLASSES.containsKey(name)) {
            CLASSES.put(name, home(name));
        }
        return (Message) CLASSES.get(name).getConstructor().newInstance();
    }

    private static Object answer(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "apis":
                return apis();
            case "rewrite":
                return rewrite(request);
            case "default":
                return written(fresh(request.get("name").asText()), (short) request.get("write").asInt());
            default:
                throw new IllegalArgumentException("unknown op: " + request);
        }
    }

    private static Object apis() {
        Map<Short, Object> found = new LinkedHashMap<>();
        for (ApiKeys key : ApiKeys.zkBrokerApis()) {
            Map<Short, short[]> headers = new LinkedHashMap<>();
            for (short version = key.oldestVersion(); version <= key.latestVersion(false); version++) {
                headers.put(version, new short[] {key.requestHeaderVersion(version), key.responseHeaderVersion(version)});
            }
            found.put(key.id, Map.of("name", key.name, "headers", headers));
        }
        return found;
    }

    private static Object rewrite(JsonNode request) throws Exception {
        Message message = fresh(request.get("name").asText());
        ByteBuffer bytes = ByteBuffer.wrap(Base64.getDecoder().decode(request.get("bytes").asText()));
        message.read(new ByteBufferAccessor(bytes), (short) request.get("read").asInt());
        if (bytes.hasRemaining()) {
            throw new IllegalArgumentException(bytes.remaining() + " bytes are left over");
        }
        return written(message, (short) request.get("write").asInt());
    }

    private static Map<String, Object> written(Message message, short version) throws Exception {
        Map<String, Object> result = new LinkedHashMap<>();
        ByteBuffer bytes = MessageUtil.toByteBuffer(message, version);
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        result.put("bytes", Base64.getEncoder().encodeToString(copy));
        result.put("json", json(message, version));
        return result;
    }

    /** Null for messages that come without a converter. */
    private static Object json(Message message, short version) throws Exception {
        try {
            Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
            return converter
                .getMethod("write", message.getClass(), short.class, boolean.class)
                .invoke(null, message, version, false);
        } catch (ClassNotFoundException none) {
            return null;
        }
    }

    private static Map<String, Object> reply(String line) {
        try {
            return Map.of("ok", answer(JSON.readTree(line)));
        } catch (Throwable thrown) {
            Throwable cause = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
            return Map.of("error", Map.of(
                "exception", cause.getClass().getSimpleName(), "message", String.valueOf(cause.getMessage())));
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream replies = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            replies.println(JSON.writeValueAsString(reply(line)));
            replies.flush();
        }
    }
}
