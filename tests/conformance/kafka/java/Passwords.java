import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

/**
 * Encodes passwords, given in hex of UTF-8, and decodes what was encoded: lines of "encode ALGORITHM LENGTH ITERATIONS
 * CIPHER HEX" and "decode CIPHER TEXT". The argument is the secret. The result is the text, or the password in hex.
 */
public class Passwords {
    public static void main(String[] args) throws Exception {
        Password secret = new Password(args[0]);
        try (Scanner lines = new Scanner(System.in)) {
            while (lines.hasNextLine()) {
                String[] words = lines.nextLine().split(" ");
                if (words[0].equals("encode")) {
                    int length = Integer.parseInt(words[2]);
                    int iterations = Integer.parseInt(words[3]);
                    String password = new String(HexFormat.of().parseHex(words[5]), StandardCharsets.UTF_8);
                    var encoder = PasswordEncoder.encrypting(secret, words[1], words[4], length, iterations);
                    System.out.println(encoder.encode(new Password(password)));
                } else {
                    var encoder = PasswordEncoder.encrypting(secret, null, words[1], 128, 4096);
                    byte[] password = encoder.decode(words[2]).value().getBytes(StandardCharsets.UTF_8);
                    System.out.println(HexFormat.of().formatHex(password));
                }
            }
        }
    }
}
