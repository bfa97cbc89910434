import java.time.Duration;
import java.util.*;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.*;

/**
 * Reads a topic in a group, and writes each record to another in transactions that carry the offsets of what was read.
 *
 * <p>Several instances, each with a transactional id of its own, live in one process. Each dies after a few transactions
 * in the midst of one, and another with the same ids takes its place. One that is killed drops its sockets and says no
 * farewell, neither to the group nor to the transaction: to the broker it looks like a process that ended by SIGKILL.
 * One that becomes a zombie lives on until its successor has begun, and then tries to commit: that must not succeed.
 *
 * <p>Each death is a line on stdout. The process ends in order when its stdin does; "live" keeps all alive from then on.
 */
public final class ExactlyOnce {
    private static final int MOST_TRANSACTIONS = 4;  // of one life
    private static final Duration POLL = Duration.ofMillis(100);
    private static final String[] STEPS = {"begun", "sent", "flushed", "offsets", "committing", "zombie"};

    private static volatile boolean mortal = true;
    private static volatile boolean running = true;

    private final String bootstrap, input, output, name;
    private final boolean isStatic;
    private Producer<String, String> producer;
    private Consumer<String, String> consumer;

    private ExactlyOnce(String[] args, int number) {
        bootstrap = args[0];
        input = args[1];
        output = args[2];
        name = "loop-" + number;
        isStatic = number > 0;
    }

    public static void main(String[] args) throws Exception {
        List<Thread> instances = new ArrayList<>();
        for (int n = 0; n < Integer.parseInt(args[3]); n++) {
            Thread thread = new Thread(new ExactlyOnce(args, n)::live);
            instances.add(thread);
            thread.start();
        }
        Scanner told = new Scanner(System.in);
        while (told.hasNextLine()) {
            mortal = !told.nextLine().equals("live");
        }
        running = false;
        for (Thread instance : instances) {
            instance.join();
        }
        System.exit(0);
    }

    private void live() {
        while (running) {
            Producer<String, String> before = null;
            try {
                begin();
                before = oneLife();
            } catch (KafkaException error) {
                say("failed " + error);
            }
            if (before == null) {
                drop(producer, consumer);
            } else {
                haunt(before);
            }
        }
    }

    private void begin() {
        Map<String, Object> consuming = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", "loop",
            "isolation.level", "read_committed",
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "max.poll.records", 20,
            "session.timeout.ms", 2000,
            "heartbeat.interval.ms", 300,
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"));
        consuming.put("internal.leave.group.on.close", false);
        if (isStatic) {
            consuming.put("group.instance.id", name);
        }
        Map<String, Object> producing = Map.of(
            "bootstrap.servers", bootstrap,
            "transactional.id", name,
            "transaction.timeout.ms", 20_000,
            "max.block.ms", 20_000,
            "linger.ms", 1);
        consumer = null;
        producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(input));
    }

    /** Until it dies. If as a zombie, what it leaves behind. */
    private Producer<String, String> oneLife() {
        int left = ThreadLocalRandom.current().nextInt(1, MOST_TRANSACTIONS + 1);
        String death = STEPS[ThreadLocalRandom.current().nextInt(STEPS.length)];
        while (running) {
            ConsumerRecords<String, String> records = consumer.poll(POLL);
            if (records.isEmpty()) {
                continue;
            }
            boolean dies = mortal && --left <= 0;
            if (!transaction(records, dies ? death : "")) {
                say("killed " + death);
                return death.equals("zombie") ? producer : null;
            }
        }
        return null;
    }

    /** False if it died at the step that was named. */
    private boolean transaction(ConsumerRecords<String, String> records, String death) {
        producer.beginTransaction();
        if (death.equals("begun")) {
            return false;
        }
        Map<TopicPartition, OffsetAndMetadata> read = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(output, record.key(), "done: " + record.value()));
            read.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        if (death.equals("sent")) {
            return false;
        }
        if (death.equals("flushed")) {
            producer.flush();
            return false;
        }
        producer.sendOffsetsToTransaction(read, consumer.groupMetadata());
        if (death.equals("offsets") || death.equals("zombie")) {
            return false;
        }
        if (death.equals("committing")) {
            dieWhileCommitting();
            return false;
        }
        producer.commitTransaction();
        return true;
    }

    private void dieWhileCommitting() {
        Producer<String, String> dying = producer;
        Thread committing = new Thread(() -> {
            try {
                dying.commitTransaction();
            } catch (KafkaException expected) {
                // it was killed meanwhile
            }
        });
        committing.start();
        try {
            Thread.sleep(ThreadLocalRandom.current().nextInt(5));
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** A successor begins, then the one before tries to go on. */
    private void haunt(Producer<String, String> zombie) {
        drop(null, consumer);
        try (Producer<String, String> successor = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap, "transactional.id", name, "max.block.ms", 20_000),
                new StringSerializer(), new StringSerializer())) {
            successor.initTransactions();
            zombie.commitTransaction();
            say("ZOMBIE COMMITTED");
        } catch (TimeoutException error) {
            say("failed " + error);
        } catch (KafkaException fenced) {
            say("fenced");
        } finally {
            drop(zombie, null);
        }
    }

    private static void drop(Producer<String, String> producer, Consumer<String, String> consumer) {
        if (producer != null) {
            producer.close(Duration.ZERO);
        }
        if (consumer != null) {
            consumer.close(Duration.ZERO);
        }
    }

    private void say(String what) {
        System.out.println(name + " " + what);
    }
}
