import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;

/** What a log remembers of its producers, in the order in which Kafka iterates over them and writes its snapshots. */
final class Producers {
    private Producers() { }

    static List<Object> describe(Collection<ProducerStateEntry> entries) {
        List<Object> producers = new ArrayList<>();
        for (ProducerStateEntry entry : entries) {
            List<Object> batches = new ArrayList<>();
            for (BatchMetadata batch : entry.batchMetadata()) {
                batches.add(Json.object(
                    "last_sequence", batch.lastSeq,
                    "last_offset", batch.lastOffset,
                    "offset_delta", batch.offsetDelta,
                    "timestamp", batch.timestamp));
            }
            producers.add(Json.object(
                "id", entry.producerId(),
                "epoch", entry.producerEpoch(),
                "first_sequence", entry.firstSeq(),
                "last_sequence", entry.lastSeq(),
                "last_offset", entry.lastDataOffset(),
                "last_timestamp", entry.lastTimestamp(),
                "coordinator_epoch", entry.coordinatorEpoch(),
                "current_txn_first_offset", Json.orNull(entry.currentTxnFirstOffset()),
                "batches", batches));
        }
        return producers;
    }
}
