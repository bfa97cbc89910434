import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import kafka.api.LeaderAndIsr;
import kafka.cluster.AlterPartitionListener;
import kafka.cluster.DelayedOperations;
import kafka.cluster.Partition;
import kafka.log.UnifiedLog;
import kafka.server.AlterPartitionManager;
import kafka.server.BrokerFeatures;
import kafka.server.RequestLocal;
import kafka.server.metadata.ZkMetadataCache;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.LeaderAndIsrRequestData.LeaderAndIsrPartitionState;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.FetchParams;
import org.apache.kafka.storage.internals.log.LogReadInfo;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/** Kafka's partition as its leader, broker 1, has it: nobody else is there but who a test says is. */
final class LedPartition {
    private static final int ME = 1;
    private static final int MAX_BYTES = 1000;

    private final UnifiedLog log;
    private final Clock clock;
    private final Partition partition;
    private final Set<Integer> alive = new HashSet<>();
    private final List<LeaderAndIsr> proposals = new ArrayList<>();
    private final List<CompletableFuture<LeaderAndIsr>> answers = new ArrayList<>();

    LedPartition(UnifiedLog log, Clock clock, long lagMs) {
        this.log = log;
        this.clock = clock;
        this.partition = new Partition(
            log.topicPartition(),
            lagMs,
            MetadataVersion.latestProduction(),
            ME,
            () -> 1L,
            clock,
            new AlterPartitionListener() {
                public void markIsrExpand() { }

                public void markIsrShrink() { }

                public void markFailed() { }
            },
            new DelayedOperations(log.topicPartition(), null, null, null) {
                @Override
                public void checkAndCompleteAll() { }

                @Override
                public int numDelayedDelete() {
                    return 0;
                }
            },
            new ZkMetadataCache(ME, MetadataVersion.latestProduction(), BrokerFeatures.createEmpty(), false) {
                @Override
                public boolean hasAliveBroker(int broker) {
                    return alive.contains(broker);
                }
            },
            null,
            new AlterPartitionManager() {
                @Override
                public CompletableFuture<LeaderAndIsr> submit(TopicIdPartition tp, LeaderAndIsr wanted, int epoch) {
                    proposals.add(wanted);
                    answers.add(new CompletableFuture<>());
                    return answers.get(answers.size() - 1);
                }
            },
            Option.empty());
        partition.setLog(log, false);
    }

    Object decided(JsonNode request) {
        partition.makeLeader(
            new LeaderAndIsrPartitionState()
                .setLeader(ME)
                .setLeaderEpoch(request.get("leader_epoch").asInt())
                .setPartitionEpoch(request.get("partition_epoch").asInt())
                .setIsr(numbers(request.get("isr")))
                .setReplicas(numbers(request.get("replicas"))),
            null,
            Option.empty(),
            Option.empty());
        return state();
    }

    Object living(JsonNode request) {
        alive.clear();
        alive.addAll(numbers(request.get("brokers")));
        return state();
    }

    Object append(JsonNode request) {
        SimpleRecord record = new SimpleRecord(clock.milliseconds(), new byte[] {1});
        partition.appendRecordsToLeader(
            MemoryRecords.withRecords(Compression.NONE, record),
            AppendOrigin.CLIENT,
            request.get("acks").asInt(),
            RequestLocal.NoCaching(),
            VerificationGuard.SENTINEL);
        return state();
    }

    Object fetched(JsonNode request) {
        LogReadInfo read = partition.fetchRecords(
            new FetchParams(
                (short) 16, request.get("replica").asInt(), -1, 0, 0, MAX_BYTES, FetchIsolation.LOG_END, Optional.empty()),
            new FetchRequest.PartitionData(
                Uuid.ZERO_UUID,
                request.get("offset").asLong(),
                request.get("log_start").asLong(),
                MAX_BYTES,
                Optional.of(request.get("leader_epoch").asInt())),
            clock.milliseconds(),
            MAX_BYTES,
            true,
            true);
        assert !read.divergingEpoch.isPresent();
        return state();
    }

    Object shrink() {
        partition.maybeShrinkIsr();
        return state();
    }

    /** To the latest proposal: an error, or what was decided. */
    Object answered(JsonNode request) {
        CompletableFuture<LeaderAndIsr> answer = answers.get(answers.size() - 1);
        short code = (short) request.get("code").asInt();
        if (code != 0) {
            answer.completeExceptionally(Errors.forCode(code).exception());
        } else {
            answer.complete(LeaderAndIsr.apply(
                ME,
                request.get("leader_epoch").asInt(),
                CollectionConverters.asScala(new ArrayList<Object>(numbers(request.get("isr")))).toList(),
                LeaderRecoveryState.RECOVERED,
                request.get("partition_epoch").asInt()));
        }
        return state();
    }

    private Object state() {
        Tuple2<Object, Errors> enough = partition.checkEnoughReplicasReachOffset(log.highWatermark());
        LeaderAndIsr last = proposals.isEmpty() ? null : proposals.get(proposals.size() - 1);
        return Json.object(
            "high_watermark", log.highWatermark(),
            "log_end", log.logEndOffset(),
            "low_watermark", partition.isLeader() ? partition.lowWatermarkIfLeader() : -1,
            "isr", new TreeSet<>(CollectionConverters.asJava(partition.partitionState().isr())),
            "maximal_isr", new TreeSet<>(CollectionConverters.asJava(partition.partitionState().maximalIsr())),
            "is_pending", partition.partitionState().isInflight(),
            "leader_epoch", partition.getLeaderEpoch(),
            "partition_epoch", partition.getPartitionEpoch(),
            "after_append", enough._2().code(),
            "proposals", proposals.size(),
            "proposed", last == null ? null : new TreeSet<>(CollectionConverters.asJava(last.isr())));
    }

    private static List<Integer> numbers(JsonNode node) {
        List<Integer> numbers = new ArrayList<>();
        node.forEach(number -> numbers.add(number.asInt()));
        return numbers;
    }
}
