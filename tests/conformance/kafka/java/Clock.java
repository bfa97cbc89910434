import java.util.function.Supplier;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.utils.Time;

/** A clock that stands still until a test moves it. Whoever sleeps on it moves it. */
final class Clock implements Time {
    private long nowMs;

    Clock(long nowMs) {
        this.nowMs = nowMs;
    }

    void set(long ms) {
        nowMs = ms;
    }

    @Override
    public long milliseconds() {
        return nowMs;
    }

    @Override
    public long nanoseconds() {
        return nowMs * 1_000_000;
    }

    @Override
    public void sleep(long ms) {
        nowMs += ms;
    }

    /** Nobody else runs who could make the condition true, so it holds now or never. */
    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        if (!condition.get()) {
            nowMs = Math.max(nowMs, deadlineMs);
            throw new TimeoutException("the condition does not hold, and no other thread runs");
        }
    }
}
