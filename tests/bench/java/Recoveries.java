import com.fasterxml.jackson.databind.JsonNode;
import kafka.log.UnifiedLog;

/** Opening a log after an unclean stop, with nothing known to be flushed. */
final class Recoveries {
    private Recoveries() { }

    static Object recover(JsonNode request) {
        Logs.scheduler();
        Stopwatch watch = new Stopwatch();
        UnifiedLog log = Logs.open(request, false);
        Object measured = watch.stop(
            "log_end", log.logEndOffset(), "bytes", log.size(), "segments", log.numberOfSegments());
        Logs.abandon(log);
        return measured;
    }
}
