import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.common.utils.Exit;

/**
 * Loads the classes that a Kafka of the tests needs: runs ZooKeeper, a broker and a few tools in one JVM, then ends.
 * The argument is a folder for their files.
 */
public final class ClassLoading {
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private ClassLoading() { }

    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]);
        int clientPort = freePort();
        String bootstrap = "127.0.0.1:" + freePort();
        start("org.apache.zookeeper.server.quorum.QuorumPeerMain", folder.resolve("zookeeper.properties"),
            "dataDir=" + folder.resolve("zookeeper"),
            "clientPort=" + clientPort,
            "clientPortAddress=127.0.0.1",
            "admin.enableServer=false");
        start("kafka.Kafka", folder.resolve("server.properties"),
            "listeners=PLAINTEXT://" + bootstrap,
            "log.dirs=" + folder.resolve("data"),
            "zookeeper.connect=127.0.0.1:" + clientPort,
            "offsets.topic.num.partitions=1",
            "offsets.topic.replication.factor=1",
            "group.initial.rebalance.delay.ms=0");
        Exit.setExitProcedure((code, message) -> {
            throw new Ended();
        });
        tool("org.apache.kafka.tools.TopicCommand", bootstrap, "--create", "--topic", "t");
        tool("org.apache.kafka.tools.TopicCommand", bootstrap, "--describe");
        tool("kafka.admin.ConfigCommand", bootstrap, "--describe", "--entity-type", "topics", "--entity-name", "t");
        tool("org.apache.kafka.tools.VerifiableProducer", bootstrap, "--topic", "t", "--max-messages", "5");
        tool("org.apache.kafka.tools.consumer.ConsoleConsumer", bootstrap,
            "--topic", "t", "--group", "g", "--from-beginning", "--max-messages", "5");
        tool("org.apache.kafka.tools.TransactionsCommand", bootstrap, "list");
        tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", bootstrap, "--describe", "--group", "g");
        System.exit(0); // the broker stops in order
    }

    private static void tool(String name, String bootstrap, String... arguments) {
        call(name, Stream.concat(Stream.of("--bootstrap-server", bootstrap), Stream.of(arguments)).toArray(String[]::new));
    }

    private static void start(String name, Path file, String... settings) throws Exception {
        Files.write(file, List.of(settings));
        Thread thread = new Thread(() -> call(name, file.toString()), name);
        thread.setDaemon(true);
        thread.start();
    }

    private static void call(String name, String... arguments) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (ReflectiveOperationException ended) {
            // what it needs is loaded
        }
    }

    private static int freePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }
}
