import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.TimestampOffset;

/**
 * A look at segments that changes nothing. Kafka's own accessors load the time index on first use, which creates its
 * file and makes a later close append to it; so the private fields are read, and an index that is not loaded as a file.
 */
final class Segments {
    private static final int TIME_INDEX_ENTRY_BYTES = 12;

    private Segments() { }

    static List<Object> describe(Collection<LogSegment> segments) throws IOException, ReflectiveOperationException {
        List<Object> described = new ArrayList<>();
        for (LogSegment segment : segments) {
            TimestampOffset max = maxTimestamp(segment);
            described.add(Json.object(
                "base_offset", segment.baseOffset(),
                "size", segment.size(),
                "largest_timestamp", max.timestamp >= 0 ? max.timestamp : segment.lastModified(),
                "max_timestamp", max.timestamp,
                "max_timestamp_offset", max.offset));
        }
        return described;
    }

    private static TimestampOffset maxTimestamp(LogSegment segment) throws IOException, ReflectiveOperationException {
        TimestampOffset known = (TimestampOffset) field(segment, "maxTimestampAndOffsetSoFar");
        if (known != TimestampOffset.UNKNOWN) {
            return known;
        }
        Object index = field(field(segment, "lazyTimeIndex"), "indexWrapper");
        return index.getClass().getSimpleName().equals("IndexValue")
            ? segment.timeIndex().lastEntry()
            : lastEntry(segment.timeIndexFile(), segment.baseOffset());
    }

    private static TimestampOffset lastEntry(File timeIndex, long baseOffset) throws IOException {
        long entries = timeIndex.length() / TIME_INDEX_ENTRY_BYTES;
        if (entries == 0) {
            return new TimestampOffset(-1, baseOffset);
        }
        try (RandomAccessFile file = new RandomAccessFile(timeIndex, "r")) {
            file.seek((entries - 1) * TIME_INDEX_ENTRY_BYTES);
            return new TimestampOffset(file.readLong(), baseOffset + file.readInt());
        }
    }

    private static Object field(Object owner, String name) throws ReflectiveOperationException {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }
}
