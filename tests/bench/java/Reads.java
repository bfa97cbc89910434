import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.List;
import kafka.log.UnifiedLog;
import org.apache.kafka.common.network.TransferableChannel;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.FetchIsolation;

/** Reads as a consumer's fetch does them: locate the slice, and hand it to a socket with transferTo if one is given. */
final class Reads {
    private UnifiedLog log;

    Object open(JsonNode request) {
        log = Logs.open(request, true);
        log.maybeUpdateHighWatermark(log.logEndOffset());
        return log.logEndOffset();
    }

    Object close(JsonNode request) {
        Logs.abandon(log);
        log = null;
        return null;
    }

    Object read(JsonNode request) throws IOException {
        long[] offsets = new long[request.get("offsets").size()];
        for (int i = 0; i < offsets.length; i++) {
            offsets[i] = request.get("offsets").get(i).asLong();
        }
        int maxBytes = request.get("max_bytes").asInt();
        if (request.get("verify").asBoolean()) {
            return slices(offsets, maxBytes);
        }
        int port = request.get("port").asInt();
        return port == 0 ? locate(offsets, maxBytes) : send(offsets, maxBytes, port);
    }

    private FetchDataInfo fetch(long offset, int maxBytes) {
        return log.read(offset, maxBytes, FetchIsolation.HIGH_WATERMARK, true);
    }

    private Object slices(long[] offsets, int maxBytes) {
        List<Object> slices = new ArrayList<>();
        for (long offset : offsets) {
            FetchDataInfo fetched = fetch(offset, maxBytes);
            slices.add(new long[] {
                fetched.fetchOffsetMetadata.segmentBaseOffset,
                fetched.fetchOffsetMetadata.relativePositionInSegment,
                fetched.records.sizeInBytes()});
        }
        return slices;
    }

    private Object locate(long[] offsets, int maxBytes) {
        long bytes = 0;
        Stopwatch watch = new Stopwatch();
        for (long offset : offsets) {
            bytes += fetch(offset, maxBytes).records.sizeInBytes();
        }
        return watch.stop("count", offsets.length, "bytes", bytes);
    }

    private Object send(long[] offsets, int maxBytes, int port) throws IOException {
        long bytes = 0;
        try (SocketChannel socket = SocketChannel.open(new InetSocketAddress("127.0.0.1", port))) {
            TransferableChannel target = new Plaintext(socket);
            Stopwatch watch = new Stopwatch();
            for (long offset : offsets) {
                Records records = fetch(offset, maxBytes).records;
                int size = records.sizeInBytes();
                int sent = 0;
                while (sent < size) {
                    sent += ((FileRecords) records).writeTo(target, sent, size - sent);
                }
                bytes += size;
            }
            return watch.stop("count", offsets.length, "bytes", bytes);
        }
    }

    /** What Kafka's PlaintextTransportLayer does, over a socket that blocks. */
    private static final class Plaintext implements TransferableChannel {
        private final SocketChannel socket;

        Plaintext(SocketChannel socket) {
            this.socket = socket;
        }

        @Override
        public boolean hasPendingWrites() {
            return false;
        }

        @Override
        public long transferFrom(FileChannel file, long position, long count) throws IOException {
            return file.transferTo(position, count, socket);
        }

        @Override
        public long write(ByteBuffer[] sources, int offset, int length) throws IOException {
            return socket.write(sources, offset, length);
        }

        @Override
        public long write(ByteBuffer[] sources) throws IOException {
            return socket.write(sources);
        }

        @Override
        public int write(ByteBuffer source) throws IOException {
            return socket.write(source);
        }

        @Override
        public boolean isOpen() {
            return socket.isOpen();
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }
}
