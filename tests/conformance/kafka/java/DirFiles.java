import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import kafka.server.checkpoints.OffsetCheckpointFile;
import kafka.tools.DumpLogSegments;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import org.apache.kafka.metadata.properties.MetaPropertiesVersion;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import scala.Console;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/** The files of a log directory that need no open log: checkpoints, meta.properties, snapshots, and dumps of any. */
final class DirFiles {
    private DirFiles() { }

    static Object writeCheckpoint(JsonNode request) {
        Map<TopicPartition, Object> offsets = new LinkedHashMap<>();
        for (JsonNode entry : request.get("offsets")) {
            offsets.put(new TopicPartition(entry.get(0).asText(), entry.get(1).asInt()), entry.get(2).asLong());
        }
        checkpoint(request).write(CollectionConverters.asScala(offsets));
        return null;
    }

    static Object readCheckpoint(JsonNode request) {
        List<Object> offsets = new ArrayList<>();
        CollectionConverters.asJava(checkpoint(request).read()).forEach((partition, offset) ->
            offsets.add(new Object[] {partition.topic(), partition.partition(), offset}));
        return offsets;
    }

    private static OffsetCheckpointFile checkpoint(JsonNode request) {
        return new OffsetCheckpointFile(new File(request.get("file").asText()), null);
    }

    static Object writeCleanShutdown(JsonNode request) throws Exception {
        new CleanShutdownFileHandler(request.get("dir").asText()).write(request.get("broker_epoch").asLong());
        return null;
    }

    static Object writeMetaProperties(JsonNode request) throws IOException {
        MetaProperties properties = new MetaProperties.Builder()
            .setVersion(MetaPropertiesVersion.V0)
            .setClusterId(request.get("cluster_id").asText())
            .setNodeId(request.get("broker_id").asInt())
            .build();
        File file = new File(request.get("dir").asText(), MetaPropertiesEnsemble.META_PROPERTIES_NAME);
        PropertiesUtils.writePropertiesFile(properties.toProperties(), file.getPath(), true);
        return null;
    }

    static Object readProducerSnapshot(JsonNode request) throws IOException {
        return Producers.describe(ProducerStateManager.readSnapshot(new File(request.get("file").asText())));
    }

    /** DumpLogSegments with what it prints on both streams: it reports mismatches on stderr. */
    static Object dump(JsonNode request) {
        List<String> arguments = new ArrayList<>();
        request.get("arguments").forEach(argument -> arguments.add(argument.asText()));
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream stderr = System.err;
        System.setErr(both);
        try {
            Console.withOut(both, () -> {
                DumpLogSegments.main(arguments.toArray(new String[0]));
                return BoxedUnit.UNIT;
            });
        } finally {
            System.setErr(stderr);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }
}
