import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalLong;

/** Reading requests and shaping replies. Bytes travel as base64, an absent value as null. */
final class Json {
    private Json() { }

    static Map<String, Object> object(Object... namesAndValues) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return fields;
    }

    static Long orNull(OptionalLong value) {
        return value.isPresent() ? value.getAsLong() : null;
    }

    static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    static byte[] bytes(JsonNode node) throws IOException {
        return node.isNull() ? null : node.binaryValue();
    }

    static Map<String, String> strings(JsonNode node) {
        Map<String, String> strings = new LinkedHashMap<>();
        node.fields().forEachRemaining(field -> strings.put(field.getKey(), field.getValue().asText()));
        return strings;
    }
}
