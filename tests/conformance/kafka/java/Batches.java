import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.CloseableIterator;

/** Record batches as Kafka's own builder writes them and its own iterators read them. Needs no log. */
final class Batches {
    private Batches() { }

    static byte[] build(JsonNode request) throws IOException {
        boolean control = request.get("control").asBoolean();
        long baseOffset = request.get("base_offset").asLong();
        JsonNode lastOffset = request.get("last_offset");
        if (request.get("records").isEmpty()) {
            return empty(request, lastOffset.asLong());
        }
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            new ByteBufferOutputStream(1024),
            (byte) request.get("magic").asInt(),
            Compression.of(CompressionType.forName(request.get("codec").asText())).build(),
            TimestampType.forName(request.get("timestamp_type").asText()),
            baseOffset,
            request.get("log_append_time").asLong(),
            request.get("producer_id").asLong(),
            (short) request.get("producer_epoch").asInt(),
            request.get("base_sequence").asInt(),
            request.get("transactional").asBoolean(),
            control,
            request.get("leader_epoch").asInt(),
            Integer.MAX_VALUE,
            request.get("delete_horizon_ms").asLong());
        long next = baseOffset;
        for (JsonNode record : request.get("records")) {
            long offset = record.get("offset").isNull() ? next : record.get("offset").asLong();
            SimpleRecord simple = new SimpleRecord(
                record.get("timestamp").asLong(),
                Json.bytes(record.get("key")),
                Json.bytes(record.get("value")),
                headers(record));
            if (control) {
                builder.appendControlRecordWithOffset(offset, simple);
            } else {
                builder.appendWithOffset(offset, simple);
            }
            next = offset + 1;
        }
        if (!lastOffset.isNull()) {
            builder.overrideLastOffset(lastOffset.asLong());
        }
        return Json.bytes(builder.build().buffer());
    }

    /** A batch without records, as compaction leaves it to remember a producer's last sequence. */
    private static byte[] empty(JsonNode request, long lastOffset) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(
            buffer,
            (byte) request.get("magic").asInt(),
            request.get("producer_id").asLong(),
            (short) request.get("producer_epoch").asInt(),
            request.get("base_sequence").asInt(),
            request.get("base_offset").asLong(),
            lastOffset,
            request.get("leader_epoch").asInt(),
            TimestampType.forName(request.get("timestamp_type").asText()),
            request.get("log_append_time").asLong(),
            request.get("transactional").asBoolean(),
            request.get("control").asBoolean());
        return buffer.array();
    }

    private static Header[] headers(JsonNode record) throws IOException {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), Json.bytes(header.get(1))));
        }
        return headers.toArray(new Header[0]);
    }

    static byte[] endTransactionMarker(JsonNode request) {
        ControlRecordType type = request.get("commit").asBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        return Json.bytes(MemoryRecords.withEndTransactionMarker(
            request.get("base_offset").asLong(),
            request.get("timestamp").asLong(),
            request.get("leader_epoch").asInt(),
            request.get("producer_id").asLong(),
            (short) request.get("producer_epoch").asInt(),
            new EndTransactionMarker(type, request.get("coordinator_epoch").asInt())).buffer());
    }

    static List<Object> parse(JsonNode request) throws IOException {
        List<Object> batches = new ArrayList<>();
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Json.bytes(request.get("data"))));
        for (MutableRecordBatch batch : records.batches()) {
            batches.add(describe(batch));
        }
        return batches;
    }

    private static Map<String, Object> describe(RecordBatch batch) {
        return Json.object(
            "base_offset", batch.baseOffset(),
            "last_offset", batch.lastOffset(),
            "size", batch.sizeInBytes(),
            "leader_epoch", batch.partitionLeaderEpoch(),
            "magic", batch.magic(),
            "crc", batch.checksum(),
            "valid", batch.isValid(),
            "codec", batch.compressionType().name,
            "timestamp_type", batch.timestampType().name,
            "base_timestamp", batch instanceof DefaultRecordBatch ? ((DefaultRecordBatch) batch).baseTimestamp() : null,
            "max_timestamp", batch.maxTimestamp(),
            "delete_horizon_ms", Json.orNull(batch.deleteHorizonMs()),
            "producer_id", batch.producerId(),
            "producer_epoch", batch.producerEpoch(),
            "base_sequence", batch.baseSequence(),
            "last_sequence", batch.lastSequence(),
            "count", batch.countOrNull(),
            "transactional", batch.isTransactional(),
            "control", batch.isControlBatch(),
            "records", records(batch));
    }

    private static List<Object> records(RecordBatch batch) {
        List<Object> records = new ArrayList<>();
        try (CloseableIterator<Record> iterator = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
            iterator.forEachRemaining(record -> {
                List<Object> headers = new ArrayList<>();
                for (Header header : record.headers()) {
                    headers.add(new Object[] {header.key(), header.value()});
                }
                records.add(Json.object(
                    "timestamp", record.timestamp(),
                    "key", Json.bytes(record.key()),
                    "value", Json.bytes(record.value()),
                    "headers", headers,
                    "offset", record.offset()));
            });
        }
        return records;
    }
}
