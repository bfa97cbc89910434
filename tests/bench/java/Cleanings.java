import com.fasterxml.jackson.databind.JsonNode;
import kafka.log.Cleaner;
import kafka.log.CleanerStats;
import kafka.log.LogCleanerManager;
import kafka.log.LogToClean;
import kafka.log.OffsetsToClean;
import kafka.log.UnifiedLog;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.Tuple2;
import scala.runtime.BoxedUnit;

/** One pass of Kafka's cleaner over a whole log, with the buffers that its one cleaner thread has by default. */
final class Cleanings {
    private static final int MAX_MESSAGE_BYTES = 1_048_588;
    private static Cleaner cleaner;

    private Cleanings() { }

    private static synchronized Cleaner cleaner() throws Exception {
        if (cleaner == null) {
            cleaner = new Cleaner(
                0,
                new SkimpyOffsetMap((int) CleanerConfig.LOG_CLEANER_DEDUPE_BUFFER_SIZE),
                CleanerConfig.LOG_CLEANER_IO_BUFFER_SIZE / 2,
                MAX_MESSAGE_BYTES,
                CleanerConfig.LOG_CLEANER_DEDUPE_BUFFER_LOAD_FACTOR,
                new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM),
                Time.SYSTEM,
                partition -> BoxedUnit.UNIT);
        }
        return cleaner;
    }

    static Object clean(JsonNode request) throws Exception {
        Cleaner cleaner = cleaner();
        UnifiedLog log = Logs.open(request, true);
        log.maybeUpdateHighWatermark(log.logEndOffset());
        long bytes = log.size();
        OffsetsToClean offsets =
            LogCleanerManager.cleanableOffsets(log, Option.empty(), Time.SYSTEM.milliseconds());
        LogToClean dirty = new LogToClean(
            log.topicPartition(), log, offsets.firstDirtyOffset(), offsets.firstUncleanableDirtyOffset(), false);
        Stopwatch watch = new Stopwatch();
        Tuple2<Object, CleanerStats> cleaned = cleaner.clean(dirty);
        Object measured = watch.stop(
            "bytes", bytes, "end_offset", (Long) cleaned._1(), "log_end", log.logEndOffset());
        Logs.abandon(log);
        return measured;
    }
}
