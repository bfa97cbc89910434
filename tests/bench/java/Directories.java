import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.log.LogManager;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import kafka.server.KafkaConfig;
import kafka.server.metadata.ConfigRepository;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import scala.collection.immutable.Set$;
import scala.jdk.javaapi.CollectionConverters;

/** A whole log directory, loaded by the log manager as a broker builds it; without its periodic work and its cleaner. */
final class Directories {
    private LogManager manager;

    Object open(JsonNode request) {
        Properties settings = new Properties();
        settings.put("broker.id", "0");
        settings.put("zookeeper.connect", "127.0.0.1:1");
        settings.put("log.dirs", request.get("dir").asText());
        KafkaConfig config = KafkaConfig.fromProps(settings);
        ConfigRepository noOverrides = resource -> new Properties();
        Logs.scheduler();
        Stopwatch watch = new Stopwatch();
        manager = LogManager.apply(
            config,
            CollectionConverters.asScala(List.<String>of()),
            noOverrides,
            Logs.scheduler(),
            Time.SYSTEM,
            new BrokerTopicStats(false),
            new LogDirFailureChannel(1),
            true);
        manager.loadLogs(
            manager.initialDefaultConfig(),
            manager.fetchTopicConfigOverrides(manager.initialDefaultConfig(), Set$.MODULE$.empty()),
            log -> false);
        Map<String, Object> measured = watch.stop();
        long sumOfLogEnds = 0;
        for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs())) {
            sumOfLogEnds += log.logEndOffset();
        }
        measured.put("logs", manager.allLogs().size());
        measured.put("log_end", sumOfLogEnds);
        return measured;
    }

    Object close(JsonNode request) {
        manager.shutdown(-1);
        return null;
    }
}
