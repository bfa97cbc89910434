import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import kafka.log.Cleaner;
import kafka.log.CleanerStats;
import kafka.log.LogCleanerManager;
import kafka.log.LogToClean;
import kafka.log.OffsetsToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import kafka.server.RequestLocal;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;
import scala.jdk.javaapi.OptionConverters;
import scala.runtime.BoxedUnit;

/** One partition's log, opened as the broker's log manager opens it, and what a broker does to it. */
final class OpenLog {
    private static final int MAX_TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000;
    private static final int PRODUCER_EXPIRATION_CHECK_INTERVAL_MS = 10 * 60 * 1000;
    private static final double CLEANER_LOAD_FACTOR = 0.9;

    private final Clock clock;
    private final Tasks tasks;
    private final UnifiedLog log;
    private final BrokerTopicStats stats = new BrokerTopicStats(false);
    private final RequestLocal requestLocal = RequestLocal.withThreadConfinedCaching();

    OpenLog(JsonNode request, Clock clock) {
        this.clock = clock;
        this.tasks = new Tasks(clock);
        this.log = UnifiedLog.apply(
            new File(request.get("dir").asText()),
            config(request),
            request.get("log_start_offset").asLong(),
            request.get("recovery_point").asLong(),
            tasks,
            stats,
            clock,
            MAX_TRANSACTION_TIMEOUT_MS,
            new ProducerStateManagerConfig(
                request.get("producer_id_expiration_ms").asInt(), request.get("verify_transactions").asBoolean()),
            PRODUCER_EXPIRATION_CHECK_INTERVAL_MS,
            new LogDirFailureChannel(1),
            request.get("clean").asBoolean(),
            option(request.get("topic_id"), id -> Uuid.fromString(id.asText())),
            true,
            new ConcurrentHashMap<>(),
            false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }

    private static <T> Option<T> option(JsonNode node, Function<JsonNode, T> read) {
        return node.isNull() ? Option.empty() : Option.apply(read.apply(node));
    }

    /** A topic's settings; unlike a broker at start-up, refuses a name that Kafka does not know. */
    private static LogConfig config(JsonNode request) {
        Properties settings = new Properties();
        settings.putAll(Json.strings(request.get("config")));
        LogConfig.validateNames(settings);
        return new LogConfig(settings);
    }

    /** The partition that this log belongs to, with this broker as its leader to be. */
    LedPartition partition(JsonNode request) {
        return new LedPartition(log, clock, request.get("lag_ms").asLong());
    }

    /** The same, with another broker as its leader. */
    FollowedPartition following() {
        return new FollowedPartition(log);
    }

    /** What a controlled shutdown does to each log. Delayed tasks are lost with the scheduler. */
    void close() {
        log.flush(true);
        log.close();
        forget();
    }

    /** Lets go of the files and leaves them as they are: indexes keep their preallocated size, no snapshot is taken. */
    void abandon() {
        log.closeHandlers();
        forget();
    }

    private void forget() {
        tasks.shutdown();
        log.removeLogMetrics();
        stats.close();
        requestLocal.close();
    }

    Object appendLeader(JsonNode request) throws IOException {
        MemoryRecords records = records(request);
        return describe(log.appendAsLeader(
            records,
            request.get("epoch").asInt(),
            AppendOrigin.valueOf(request.get("origin").asText()),
            MetadataVersion.latestProduction(),
            requestLocal,
            request.get("verified").asBoolean() ? guard(records) : VerificationGuard.SENTINEL));
    }

    /** What the transaction coordinator's word is worth: this partition is part of the first batch's transaction. */
    private VerificationGuard guard(MemoryRecords records) {
        RecordBatch first = records.batches().iterator().next();
        return log.maybeStartTransactionVerification(first.producerId(), first.baseSequence(), first.producerEpoch());
    }

    Object appendFollower(JsonNode request) throws IOException {
        return describe(log.appendAsFollower(records(request)));
    }

    private static MemoryRecords records(JsonNode request) throws IOException {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(Json.bytes(request.get("batches"))));
    }

    private static Object describe(LogAppendInfo info) {
        return Json.object(
            "first_offset", info.firstOffset(),
            "last_offset", info.lastOffset(),
            "log_append_time", info.logAppendTime(),
            "max_timestamp", info.maxTimestamp(),
            "log_start_offset", info.logStartOffset(),
            "shallow_offset_of_max_timestamp", info.shallowOffsetOfMaxTimestamp());
    }

    Object roll() {
        return log.roll(Option.empty()).baseOffset();
    }

    Object flush() {
        log.flush(false);
        return log.recoveryPoint();
    }

    Object truncateTo(JsonNode request) {
        return log.truncateTo(request.get("offset").asLong());
    }

    Object truncateFullyAndStartAt(JsonNode request) {
        log.truncateFullyAndStartAt(
            request.get("offset").asLong(), option(request.get("log_start_offset"), JsonNode::asLong));
        return null;
    }

    Object highWatermark(JsonNode request) {
        log.maybeUpdateHighWatermark(request.get("offset").asLong());
        return log.highWatermark();
    }

    Object deleteRecords(JsonNode request) {
        LogStartOffsetIncrementReason reason = LogStartOffsetIncrementReason.ClientRecordDeletion;
        return log.maybeIncrementLogStartOffset(request.get("offset").asLong(), reason);
    }

    Object deleteOldSegments() {
        return log.deleteOldSegments();
    }

    Object updateConfig(JsonNode request) {
        log.updateConfig(config(request));
        return null;
    }

    Object removeExpiredProducers() {
        log.removeExpiredProducers(clock.milliseconds());
        return null;
    }

    Object runScheduled(JsonNode request) {
        clock.sleep(request.get("advance_ms").asLong());
        return tasks.runDue();
    }

    Object state() throws IOException, ReflectiveOperationException {
        List<Object> epochs = new ArrayList<>();
        if (log.leaderEpochCache().isDefined()) {
            for (EpochEntry entry : log.leaderEpochCache().get().epochEntries()) {
                epochs.add(new long[] {entry.epoch, entry.startOffset});
            }
        }
        return Json.object(
            "log_start_offset", log.logStartOffset(),
            "log_end_offset", log.logEndOffset(),
            "high_watermark", log.highWatermark(),
            "last_stable_offset", log.lastStableOffset(),
            "first_unstable_offset", log.firstUnstableOffset().isEmpty() ? null : log.firstUnstableOffset().get(),
            "recovery_point", log.recoveryPoint(),
            "producer_state_end_offset", log.latestProducerStateEndOffset(),
            "topic_id", log.topicId().isEmpty() ? null : log.topicId().get().toString(),
            "segments", Segments.describe(log.logSegments()),
            "epochs", epochs,
            "producers", Producers.describe(log.producerStateManager().activeProducers().values()));
    }

    Object read(JsonNode request) throws IOException {
        FetchDataInfo fetched = log.read(
            request.get("offset").asLong(),
            request.get("max_bytes").asInt(),
            FetchIsolation.valueOf(request.get("isolation").asText()),
            request.get("min_one").asBoolean());
        return Json.object(
            "data", bytes(fetched),
            "offset", fetched.fetchOffsetMetadata.messageOffset,
            "segment_base_offset", fetched.fetchOffsetMetadata.segmentBaseOffset,
            "position", fetched.fetchOffsetMetadata.relativePositionInSegment,
            "first_entry_incomplete", fetched.firstEntryIncomplete,
            "aborted", fetched.abortedTransactions.map(OpenLog::describe).orElse(null));
    }

    private static byte[] bytes(FetchDataInfo fetched) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(fetched.records.sizeInBytes());
        if (fetched.records instanceof FileRecords) {
            ((FileRecords) fetched.records).readInto(buffer, 0);
        }
        return Json.bytes(buffer);
    }

    private static List<Object> describe(List<FetchResponseData.AbortedTransaction> aborted) {
        List<Object> pairs = new ArrayList<>();
        aborted.forEach(transaction -> pairs.add(new long[] {transaction.producerId(), transaction.firstOffset()}));
        return pairs;
    }

    Object aborted(JsonNode request) {
        List<Object> found = new ArrayList<>();
        List<AbortedTxn> transactions = CollectionConverters.asJava(
            log.collectAbortedTransactions(request.get("start").asLong(), request.get("end").asLong()));
        for (AbortedTxn aborted : transactions) {
            found.add(Json.object(
                "producer_id", aborted.producerId(),
                "first_offset", aborted.firstOffset(),
                "last_offset", aborted.lastOffset(),
                "last_stable_offset", aborted.lastStableOffset()));
        }
        return found;
    }

    Object offsetForTimestamp(JsonNode request) {
        Optional<FileRecords.TimestampAndOffset> found =
            OptionConverters.toJava(log.fetchOffsetByTimestamp(request.get("timestamp").asLong(), Option.empty()));
        return found.map(at -> new Object[] {at.timestamp, at.offset, at.leaderEpoch.orElse(null)}).orElse(null);
    }

    Object endOffsetForEpoch(JsonNode request) {
        return OptionConverters.toJava(log.endOffsetForEpoch(request.get("epoch").asInt()))
            .map(end -> new Object[] {end.leaderEpoch(), end.offset()}).orElse(null);
    }

    Object cleanableOffsets(JsonNode request) {
        OffsetsToClean offsets = LogCleanerManager.cleanableOffsets(
            log, option(request.get("last_clean_offset"), JsonNode::asLong), clock.milliseconds());
        return new long[] {offsets.firstDirtyOffset(), offsets.firstUncleanableDirtyOffset()};
    }

    Object clean(JsonNode request) throws Exception {
        Cleaner cleaner = new Cleaner(
            0,
            new SkimpyOffsetMap(request.get("dedupe_buffer_size").asInt()),
            request.get("io_buffer_size").asInt(),
            request.get("max_io_buffer_size").asInt(),
            CLEANER_LOAD_FACTOR,
            new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner-io", "bytes", clock),
            clock,
            partition -> BoxedUnit.UNIT);
        LogToClean dirty = new LogToClean(
            log.topicPartition(),
            log,
            request.get("first_dirty_offset").asLong(),
            request.get("first_uncleanable_offset").asLong(),
            false);
        if (!request.get("now").isNull()) {
            clock.set(request.get("now").asLong());
        }
        Tuple2<Object, CleanerStats> cleaned = cleaner.clean(dirty);
        return describe((Long) cleaned._1(), cleaned._2());
    }

    private static Map<String, Object> describe(long endOffset, CleanerStats stats) {
        return Json.object(
            "end_offset", endOffset,
            "bytes_read", stats.bytesRead(),
            "bytes_written", stats.bytesWritten(),
            "map_bytes_read", stats.mapBytesRead(),
            "map_messages_read", stats.mapMessagesRead(),
            "messages_read", stats.messagesRead(),
            "invalid_messages_read", stats.invalidMessagesRead(),
            "messages_written", stats.messagesWritten(),
            "buffer_utilization", stats.bufferUtilization());
    }
}
