import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/** Values of sasl.jaas.config on stdin, in hex of UTF-8, one a line: class, flag and options in hex, or "error". */
public class JaasLines {
    public static void main(String[] args) {
        try (Scanner lines = new Scanner(System.in)) {
            while (lines.hasNextLine()) {
                String text = new String(HexFormat.of().parseHex(lines.nextLine().strip()), StandardCharsets.UTF_8);
                System.out.println(parsed(text));
            }
        }
    }

    private static String parsed(String text) {
        try {
            JaasContext context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text)));
            AppConfigurationEntry entry = context.configurationEntries().get(0);
            List<String> words = new ArrayList<>();
            words.add(hex(entry.getLoginModuleName()));
            words.add(hex(entry.getControlFlag().toString()));
            entry.getOptions().forEach((key, value) -> words.add(hex(key) + "=" + hex((String) value)));
            return String.join(" ", words);
        } catch (Exception e) {
            return "error";
        }
    }

    private static String hex(String text) {
        return text == null ? "null" : HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
