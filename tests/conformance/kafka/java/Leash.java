import java.io.IOException;
import java.util.Arrays;

/** Runs the main class named first, and ends when stdin ends: a server never outlives the test run that started it. */
public final class Leash {
    private Leash() { }

    public static void main(String[] args) throws Exception {
        Thread watch = new Thread(Leash::haltAtEndOfInput, "leash");
        watch.setDaemon(true);
        watch.start();
        Class.forName(args[0])
            .getMethod("main", String[].class)
            .invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
    }

    private static void haltAtEndOfInput() {
        try {
            while (System.in.read() >= 0) { }
        } catch (IOException broken) {
            // the same as the end
        }
        Runtime.getRuntime().halt(1);
    }
}
