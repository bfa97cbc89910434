import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.ProduceResponse.RecordError;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Kafka's own storage classes, driven by a test.
 *
 * Protocol: one request per line on stdin, one reply per line on stdout, both JSON.
 *     {"op": NAME, argument...}
 *     {"ok": value} or {"error": {code, name, message, exception, record_errors}}
 * The end of stdin ends the process. Nothing else ends it: whatever a request throws is its answer.
 */
public final class LogOracle {
    private static final long START_MS = 1_700_000_000_000L;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Clock clock = new Clock(START_MS);
    private final Map<String, Command> commands = new LinkedHashMap<>();
    private OpenLog log;
    private LedPartition partition;
    private FollowedPartition followed;

    private interface Command {
        Object run(JsonNode request) throws Exception;
    }

    private interface LogCommand {
        Object run(OpenLog log, JsonNode request) throws Exception;
    }

    private LogOracle() {
        commands.put("time", this::time);
        commands.put("open", this::open);
        commands.put("close", this::close);
        commands.put("abandon", request -> abandon());

        onLog("append_leader", OpenLog::appendLeader);
        onLog("append_follower", OpenLog::appendFollower);
        onLog("roll", (log, request) -> log.roll());
        onLog("flush", (log, request) -> log.flush());
        onLog("truncate_to", OpenLog::truncateTo);
        onLog("truncate_fully_and_start_at", OpenLog::truncateFullyAndStartAt);
        onLog("high_watermark", OpenLog::highWatermark);
        onLog("delete_records", OpenLog::deleteRecords);
        onLog("delete_old_segments", (log, request) -> log.deleteOldSegments());
        onLog("update_config", OpenLog::updateConfig);
        onLog("remove_expired_producers", (log, request) -> log.removeExpiredProducers());
        onLog("run_scheduled", OpenLog::runScheduled);
        onLog("state", (log, request) -> log.state());
        onLog("read", OpenLog::read);
        onLog("offset_for_timestamp", OpenLog::offsetForTimestamp);
        onLog("end_offset_for_epoch", OpenLog::endOffsetForEpoch);
        onLog("aborted", OpenLog::aborted);
        onLog("cleanable_offsets", OpenLog::cleanableOffsets);
        onLog("clean", OpenLog::clean);

        onLog("partition", this::lead);
        commands.put("partition_decided", request -> partition.decided(request));
        commands.put("partition_living", request -> partition.living(request));
        commands.put("partition_append", request -> partition.append(request));
        commands.put("partition_fetched", request -> partition.fetched(request));
        commands.put("partition_shrink", request -> partition.shrink());
        commands.put("partition_answered", request -> partition.answered(request));

        onLog("followed", (log, request) -> follow(log));
        commands.put("followed_epoch", request -> followed.follow(request));
        commands.put("followed_round", request -> followed.round(request));

        commands.put("elect", Elections::elect);

        FetchSessions sessions = new FetchSessions();
        commands.put("session", request -> sessions.open());
        commands.put("session_next", sessions::next);
        commands.put("session_received", sessions::received);
        commands.put("session_failed", request -> sessions.failed());

        commands.put("build", Batches::build);
        commands.put("parse", Batches::parse);
        commands.put("end_transaction_marker", Batches::endTransactionMarker);

        commands.put("checkpoint_write", DirFiles::writeCheckpoint);
        commands.put("checkpoint_read", DirFiles::readCheckpoint);
        commands.put("clean_shutdown_file", DirFiles::writeCleanShutdown);
        commands.put("meta_properties", DirFiles::writeMetaProperties);
        commands.put("producer_snapshot", DirFiles::readProducerSnapshot);
        commands.put("dump", DirFiles::dump);
    }

    private void onLog(String name, LogCommand command) {
        commands.put(name, request -> {
            if (log == null) {
                throw new IllegalStateException("no log is open");
            }
            return command.run(log, request);
        });
    }

    private Object time(JsonNode request) {
        clock.set(request.get("ms").asLong());
        return null;
    }

    private Object open(JsonNode request) throws Exception {
        abandon();
        log = new OpenLog(request, clock);
        return null;
    }

    private Object lead(OpenLog log, JsonNode request) {
        partition = log.partition(request);
        return null;
    }

    private Object follow(OpenLog log) {
        followed = log.following();
        return null;
    }

    private Object close(JsonNode request) throws Exception {
        if (log != null) {
            log.close();
            log = null;
        }
        return null;
    }

    private Object abandon() {
        if (log != null) {
            log.abandon();
            log = null;
        }
        return null;
    }

    private Map<String, Object> answer(String line) {
        try {
            JsonNode request = JSON.readTree(line);
            Command command = commands.get(request.path("op").asText());
            if (command == null) {
                throw new IllegalArgumentException("unknown op: " + request.path("op").asText());
            }
            return Json.object("ok", command.run(request));
        } catch (Throwable thrown) {
            return Json.object("error", describe(thrown));
        }
    }

    /** The error as a response would carry it. A validation error stands for its cause, with the records at fault. */
    private static Map<String, Object> describe(Throwable thrown) {
        List<Object> recordErrors = new ArrayList<>();
        Throwable cause = thrown;
        if (thrown instanceof RecordValidationException) {
            cause = ((RecordValidationException) thrown).invalidException();
            for (RecordError error : ((RecordValidationException) thrown).recordErrors()) {
                recordErrors.add(new Object[] {error.batchIndex, error.message});
            }
        }
        Errors error = Errors.forException(cause);
        if (error == Errors.UNKNOWN_SERVER_ERROR) {
            cause.printStackTrace();
        }
        return Json.object(
            "code", error.code(),
            "name", error.name(),
            "message", cause.getMessage(),
            "exception", cause.getClass().getName(),
            "record_errors", recordErrors);
    }

    public static void main(String[] args) throws Exception {
        PrintStream replies = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Function<String, Exit.Procedure> refuse = how -> (status, message) -> {
            throw new IllegalStateException("Kafka wanted to " + how + " with status " + status + ": " + message);
        };
        Exit.setExitProcedure(refuse.apply("exit"));
        Exit.setHaltProcedure(refuse.apply("halt"));

        LogOracle oracle = new LogOracle();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            replies.print(JSON.writeValueAsString(oracle.answer(line)) + "\n");
            replies.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
