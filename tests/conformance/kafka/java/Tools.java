import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after another in one JVM, which is up after the first of them.
 * Each line of stdin is a call: the main class and its arguments, with U+001F between them. What is answered on stdout:
 * the exit code (4 bytes), then the length (4) and the bytes of what the tool printed on stdout, and so for stderr.
 */
public final class Tools {
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    // The same for all tools: those written in Scala go on printing to what was there when the first of them began.
    private static final ByteArrayOutputStream OUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERR = new ByteArrayOutputStream();

    private static Integer firstCode; // some tools catch what ends them, and end again

    private Tools() { }

    public static void main(String[] args) throws Exception {
        DataOutputStream answers = new DataOutputStream(System.out);
        System.setOut(new PrintStream(OUT, true, "UTF-8"));
        System.setErr(new PrintStream(ERR, true, "UTF-8"));
        Exit.setExitProcedure((code, message) -> {
            firstCode = firstCode == null ? code : firstCode;
            throw new Ended();
        });
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String call = calls.readLine(); call != null; call = calls.readLine()) {
            answer(call.split("\u001f", -1), answers);
        }
        Runtime.getRuntime().halt(0); // some tools leave threads behind
    }

    private static void answer(String[] call, DataOutputStream answers) throws Exception {
        answers.writeInt(run(call));
        System.out.flush();
        System.err.flush();
        write(OUT, answers);
        write(ERR, answers);
        answers.flush();
    }

    private static int run(String[] call) throws Exception {
        firstCode = null;
        try {
            String[] arguments = Arrays.copyOfRange(call, 1, call.length);
            Class.forName(call[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException thrown) {
            if (firstCode != null) {
                return firstCode;
            }
            thrown.getCause().printStackTrace();
            return 1;
        }
    }

    private static void write(ByteArrayOutputStream text, DataOutputStream answers) throws IOException {
        byte[] printed;
        synchronized (text) { // threads that a tool left behind may still log
            printed = text.toByteArray();
            text.reset();
        }
        answers.writeInt(printed.length);
        answers.write(printed);
    }
}
