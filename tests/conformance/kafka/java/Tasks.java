import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.server.util.Scheduler;

/**
 * Kafka's background work without threads: a task without delay runs at once, inside the call that schedules it;
 * a delayed one waits until {@link #runDue} finds its time come. As in Kafka, one that fails is logged and forgotten.
 */
final class Tasks implements Scheduler {
    private final Clock clock;
    private final List<Task> waiting = new ArrayList<>();
    private long scheduled = 0;

    Tasks(Clock clock) {
        this.clock = clock;
    }

    @Override
    public ScheduledFuture<?> schedule(String name, Runnable body, long delayMs, long periodMs) {
        Task task = new Task(name, body, periodMs, clock.milliseconds() + delayMs, scheduled++);
        if (delayMs <= 0 && periodMs < 0) {
            task.run();
        } else {
            waiting.add(task);
        }
        return task;
    }

    /** Runs what is due, earliest first, first scheduled first; answers with the names in the order they ran. */
    List<String> runDue() {
        List<String> ran = new ArrayList<>();
        while (true) {
            Task next = waiting.stream()
                .filter(task -> task.dueMs <= clock.milliseconds())
                .min(Comparator.<Task>comparingLong(task -> task.dueMs).thenComparingLong(task -> task.order))
                .orElse(null);
            if (next == null) {
                return ran;
            }
            if (next.periodMs > 0) {
                next.dueMs += next.periodMs;
            } else {
                waiting.remove(next);
            }
            next.run();
            ran.add(next.name);
        }
    }

    @Override
    public void startup() { }

    @Override
    public void shutdown() {
        waiting.clear();
    }

    @Override
    public void resizeThreadPool(int size) { }

    private final class Task extends CompletableFuture<Void> implements ScheduledFuture<Void> {
        final String name;
        final Runnable body;
        final long periodMs;
        final long order;
        long dueMs;

        Task(String name, Runnable body, long periodMs, long dueMs, long order) {
            this.name = name;
            this.body = body;
            this.periodMs = periodMs;
            this.dueMs = dueMs;
            this.order = order;
        }

        void run() {
            try {
                body.run();
            } catch (Throwable failure) {
                System.err.println("background task " + name + " failed: " + failure);
            }
        }

        @Override
        public boolean cancel(boolean mayInterrupt) {
            waiting.remove(this);
            return super.cancel(mayInterrupt);
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return unit.convert(dueMs - clock.milliseconds(), TimeUnit.MILLISECONDS);
        }

        @Override
        public int compareTo(Delayed other) {
            return Long.compare(getDelay(TimeUnit.MILLISECONDS), other.getDelay(TimeUnit.MILLISECONDS));
        }
    }
}
