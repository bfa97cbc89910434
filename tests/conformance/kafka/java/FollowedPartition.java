import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import kafka.cluster.BrokerEndPoint;
import kafka.log.UnifiedLog;
import kafka.server.AbstractFetcherThread;
import kafka.server.BrokerTopicStats;
import kafka.server.FailedPartitions;
import kafka.server.InitialFetchState;
import kafka.server.LeaderEndPoint;
import kafka.server.OffsetTruncationState;
import kafka.server.PartitionFetchState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.OffsetForLeaderEpochRequestData.OffsetForLeaderPartition;
import org.apache.kafka.common.message.OffsetForLeaderEpochResponseData.EpochEndOffset;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import scala.Option;
import scala.collection.Set;
import scala.jdk.javaapi.CollectionConverters;

/** Kafka's fetcher over one replica. Its thread never runs: a test makes it fetch once, and says what the leader answers. */
final class FollowedPartition {
    private static final int NEVER_MS = 1_000_000_000; // a partition that rests does so for the rest of the test
    private static final BrokerEndPoint LEADER = new BrokerEndPoint(2, "leader", 9092);

    private final UnifiedLog replica;
    private final TopicPartition tp;
    private final FailedPartitions failed = new FailedPartitions();
    private final Fetcher fetcher;
    private JsonNode answer;

    FollowedPartition(UnifiedLog log) {
        this.replica = log;
        this.tp = log.topicPartition();
        this.fetcher = new Fetcher();
    }

    Object follow(JsonNode request) {
        long offset = replica.latestEpoch().isEmpty() ? replica.highWatermark() : replica.logEndOffset();
        InitialFetchState state =
            InitialFetchState.apply(Option.empty(), LEADER, request.get("leader_epoch").asInt(), offset);
        fetcher.addPartitions(CollectionConverters.asScala(Map.of(tp, state)));
        return state();
    }

    /** One fetch, if it wants to: "fetch" is what the leader answers, "latest" and "earliest" where its log lies. */
    Object round(JsonNode request) {
        answer = request;
        Option<PartitionFetchState> state = fetcher.fetchState(tp);
        if (state.isDefined() && !state.get().isDelayed()) {
            fetcher.doWork();
        }
        return state();
    }

    private Object state() {
        Option<PartitionFetchState> state = fetcher.fetchState(tp);
        PartitionFetchState found = state.isDefined() ? state.get() : null;
        return Json.object(
            "failed", failed.contains(tp),
            "rests", found != null && found.isDelayed(),
            "offset", found == null ? null : found.fetchOffset(),
            "last_fetched_epoch", found == null ? null : found.lastFetchedEpoch().getOrElse(() -> -1));
    }

    private static MemoryRecords records(JsonNode spec) {
        List<MemoryRecords> batches = new ArrayList<>();
        int size = 0;
        for (JsonNode one : spec) {
            SimpleRecord record = new SimpleRecord(1L, new byte[] {1});
            batches.add(MemoryRecords.withRecords(one.get(0).asLong(), Compression.NONE, one.get(1).asInt(), record));
            size += batches.get(batches.size() - 1).sizeInBytes();
        }
        ByteBuffer all = ByteBuffer.allocate(size);
        batches.forEach(batch -> all.put(batch.buffer().duplicate()));
        all.flip();
        return MemoryRecords.readableRecords(all);
    }

    private final class Fetcher extends AbstractFetcherThread {
        Fetcher() {
            super("fetcher", "fetcher", new Leader(), failed, null, NEVER_MS, false, new BrokerTopicStats(false));
        }

        /** As the fetcher of replicas does. */
        @Override
        public Option<LogAppendInfo> processPartitionData(
            TopicPartition tp, long offset, FetchResponseData.PartitionData data
        ) {
            if (offset != replica.logEndOffset()) {
                throw new IllegalStateException("the log moved");
            }
            LogAppendInfo appended = replica.appendAsFollower((MemoryRecords) data.records());
            replica.maybeUpdateHighWatermark(data.highWatermark());
            replica.maybeIncrementLogStartOffset(
                data.logStartOffset(), LogStartOffsetIncrementReason.LeaderOffsetIncremented);
            return Option.apply(appended);
        }

        @Override
        public void truncate(TopicPartition tp, OffsetTruncationState state) {
            replica.truncateTo(state.offset());
        }

        @Override
        public void truncateFullyAndStartAt(TopicPartition tp, long offset) {
            replica.truncateFullyAndStartAt(offset, Option.empty());
        }

        @Override
        public Option<Object> latestEpoch(TopicPartition tp) {
            return replica.latestEpoch();
        }

        @Override
        public long logStartOffset(TopicPartition tp) {
            return replica.logStartOffset();
        }

        @Override
        public long logEndOffset(TopicPartition tp) {
            return replica.logEndOffset();
        }

        @Override
        public Option<OffsetAndEpoch> endOffsetForEpoch(TopicPartition tp, int epoch) {
            return replica.endOffsetForEpoch(epoch);
        }

        @Override
        public boolean isOffsetForLeaderEpochSupported() {
            return true;
        }
    }

    private final class Leader implements LeaderEndPoint {
        @Override
        public boolean isTruncationOnFetchSupported() {
            return true;
        }

        @Override
        public void initiateClose() { }

        @Override
        public void close() { }

        @Override
        public BrokerEndPoint brokerEndPoint() {
            return LEADER;
        }

        @Override
        public scala.collection.Map<TopicPartition, FetchResponseData.PartitionData> fetch(FetchRequest.Builder request) {
            JsonNode told = answer.get("fetch");
            FetchResponseData.PartitionData data = new FetchResponseData.PartitionData()
                .setErrorCode((short) told.get("code").asInt())
                .setHighWatermark(told.get("high_watermark").asLong())
                .setLogStartOffset(told.get("log_start").asLong())
                .setRecords(records(told.get("records")));
            if (!told.get("diverging").isNull()) {
                data.setDivergingEpoch(new FetchResponseData.EpochEndOffset()
                    .setEpoch(told.get("diverging").get(0).asInt())
                    .setEndOffset(told.get("diverging").get(1).asLong()));
            }
            return CollectionConverters.asScala(Map.of(tp, data));
        }

        private OffsetAndEpoch offset(JsonNode told) {
            if (told.get(0).asInt() != 0) {
                throw Errors.forCode((short) told.get(0).asInt()).exception();
            }
            return new OffsetAndEpoch(told.get(1).asLong(), 0);
        }

        @Override
        public OffsetAndEpoch fetchEarliestOffset(TopicPartition tp, int epoch) {
            return offset(answer.get("earliest"));
        }

        @Override
        public OffsetAndEpoch fetchLatestOffset(TopicPartition tp, int epoch) {
            return offset(answer.get("latest"));
        }

        @Override
        public OffsetAndEpoch fetchEarliestLocalOffset(TopicPartition tp, int epoch) {
            return fetchEarliestOffset(tp, epoch);
        }

        @Override
        public scala.collection.Map<TopicPartition, EpochEndOffset> fetchEpochEndOffsets(
            scala.collection.Map<TopicPartition, OffsetForLeaderPartition> asked
        ) {
            throw new IllegalStateException("nobody asks for epochs who is told of them");
        }

        @Override
        public AbstractFetcherThread.ResultWithPartitions<Option<AbstractFetcherThread.ReplicaFetch>> buildFetch(
            scala.collection.Map<TopicPartition, PartitionFetchState> states
        ) {
            PartitionFetchState state = states.apply(tp);
            FetchRequest.PartitionData position = new FetchRequest.PartitionData(
                Uuid.ZERO_UUID, state.fetchOffset(), 0, 1000, Optional.of(state.currentLeaderEpoch()));
            Set<TopicPartition> none = CollectionConverters.asScala(java.util.Set.of());
            return new AbstractFetcherThread.ResultWithPartitions<>(
                Option.apply(new AbstractFetcherThread.ReplicaFetch(Map.of(tp, position), null)), none);
        }
    }
}
