import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import kafka.log.UnifiedLog;
import kafka.server.RequestLocal;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.VerificationGuard;

/** Appends to a new log, one after the other in one thread. The first one, which creates the epoch file, is not timed. */
final class Appends {
    private static final int LENGTH_END = 12;
    private static final MetadataVersion VERSION = MetadataVersion.latestProduction();

    private static String loadedPath = "";
    private static List<ByteBuffer> loaded = List.of();

    private final UnifiedLog log;
    private final RequestLocal requestLocal = RequestLocal.withThreadConfinedCaching();

    private Appends(UnifiedLog log) {
        this.log = log;
    }

    static Object append(JsonNode request) throws IOException {
        int chunkBytes = request.get("chunk_bytes").asInt();
        List<ByteBuffer> chunks = load(request.get("batches").asText(), chunkBytes);
        int total = chunks.size() * request.get("passes").asInt();
        UnifiedLog log = Logs.open(request, true);
        Appends appends = new Appends(log);
        boolean leader = chunkBytes == 0;
        appends.run(chunks, 0, 1, leader);
        long before = log.size();
        Stopwatch watch = new Stopwatch();
        appends.run(chunks, 1, total, leader);
        Object measured = watch.stop(
            "count", total - 1, "bytes", log.size() - before, "log_end", log.logEndOffset());
        Logs.abandon(log);
        return measured;
    }

    private void run(List<ByteBuffer> chunks, int from, int to, boolean leader) {
        for (int i = from; i < to; i++) {
            ByteBuffer chunk = chunks.get(i % chunks.size());
            if (leader) {
                chunk.putLong(0, 0L);
                log.appendAsLeader(
                    MemoryRecords.readableRecords(chunk.duplicate()), 0, AppendOrigin.CLIENT, VERSION, requestLocal,
                    VerificationGuard.SENTINEL);
            } else {
                log.appendAsFollower(MemoryRecords.readableRecords(chunk.duplicate()));
            }
        }
    }

    /** Read once, however often it is appended: what a request leaves to the collector is not measured here. */
    private static synchronized List<ByteBuffer> load(String path, int chunkBytes) throws IOException {
        if (!path.equals(loadedPath)) {
            loaded = split(Files.readAllBytes(new File(path).toPath()), chunkBytes);
            loadedPath = path;
        }
        return loaded;
    }

    /** Whole batches, as many as fit into so many bytes; at least one. */
    private static List<ByteBuffer> split(byte[] data, int chunkBytes) {
        List<ByteBuffer> chunks = new ArrayList<>();
        ByteBuffer all = ByteBuffer.wrap(data);
        int start = 0;
        int at = 0;
        while (at < data.length) {
            int behind = at + LENGTH_END + all.getInt(at + 8);
            if (behind - start > chunkBytes && at > start) {
                chunks.add(all.slice(start, at - start));
                start = at;
            }
            at = behind;
        }
        chunks.add(all.slice(start, at - start));
        return chunks;
    }
}
