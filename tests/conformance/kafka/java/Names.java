import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Scanner;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Names in DER on stdin, in hex, one a line: each as Java writes it, in hex of UTF-8. With rules: as they map it. */
public class Names {
    public static void main(String[] args) {
        SslPrincipalMapper mapper = args.length > 0 ? SslPrincipalMapper.fromRules(args[0]) : null;
        try (Scanner lines = new Scanner(System.in)) {
            while (lines.hasNextLine()) {
                String line = lines.nextLine().strip();
                String name = new X500Principal(HexFormat.of().parseHex(line)).getName();
                try {
                    name = mapper == null ? name : mapper.getName(name);
                } catch (Exception e) {
                    name = "no rule";
                }
                System.out.println(HexFormat.of().formatHex(name.getBytes(StandardCharsets.UTF_8)));
            }
        }
    }
}
