import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import scala.Option;

/** Logs of single partitions, opened as the broker's log manager opens them, with its defaults. */
final class Logs {
    private static final int MAX_TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000;
    private static final int PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000;
    private static final int PRODUCER_EXPIRATION_CHECK_INTERVAL_MS = 10 * 60 * 1000;
    private static final int BACKGROUND_THREADS = 10;
    private static final BrokerTopicStats STATS = new BrokerTopicStats(false);
    private static KafkaScheduler scheduler;

    private Logs() { }

    static synchronized KafkaScheduler scheduler() {
        if (scheduler == null) {
            scheduler = new KafkaScheduler(BACKGROUND_THREADS);
            scheduler.startup();
        }
        return scheduler;
    }

    static UnifiedLog open(JsonNode request, boolean clean) {
        Properties settings = new Properties();
        settings.putAll(Json.strings(request.get("config")));
        return UnifiedLog.apply(
            new File(request.get("dir").asText()),
            new LogConfig(settings),
            0L,
            0L,
            scheduler(),
            STATS,
            Time.SYSTEM,
            MAX_TRANSACTION_TIMEOUT_MS,
            new ProducerStateManagerConfig(PRODUCER_ID_EXPIRATION_MS, true),
            PRODUCER_EXPIRATION_CHECK_INTERVAL_MS,
            new LogDirFailureChannel(1),
            clean,
            Option.empty(),
            true,
            new ConcurrentHashMap<>(),
            false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }

    /** Lets go of the files and leaves them as they are. */
    static void abandon(UnifiedLog log) {
        log.producerExpireCheck().cancel(false);
        log.closeHandlers();
        log.removeLogMetrics();
    }
}
