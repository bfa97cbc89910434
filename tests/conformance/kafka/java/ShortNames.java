import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Scanner;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/** Lines on stdin: default realm, name, and rules, with tabs between them. Each is answered with a user, or a failure. */
public class ShortNames {
    public static void main(String[] args) {
        try (Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8)) {
            while (lines.hasNextLine()) {
                String[] parts = lines.nextLine().split("\t", -1);
                System.out.println(answer(parts[0], parts[1], Arrays.copyOfRange(parts, 2, parts.length)));
            }
        }
    }

    private static String answer(String realm, String name, String[] rules) {
        KerberosShortNamer namer;
        try {
            namer = KerberosShortNamer.fromUnparsedRules(realm, Arrays.asList(rules));
        } catch (Exception e) {
            return "invalid rules";
        }
        try {
            return "user " + namer.shortName(KerberosName.parse(name));
        } catch (Exception e) {
            return "nobody";
        }
    }
}
