import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.LinkedHashMap;
import java.util.Map;

/** Wall time, and the CPU time of the whole process: what the collector and the compiler burn counts as well. */
final class Stopwatch {
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final long cpu = SYSTEM.getProcessCpuTime();
    private final long wall = System.nanoTime();

    /** The times up to now, and what was done in them. */
    Map<String, Object> stop(Object... namesAndValues) {
        double seconds = (System.nanoTime() - wall) / 1e9;
        double cpuSeconds = (SYSTEM.getProcessCpuTime() - cpu) / 1e9;
        Map<String, Object> measured = new LinkedHashMap<>(Json.object("seconds", seconds, "cpu_seconds", cpuSeconds));
        measured.putAll(Json.object(namesAndValues));
        return measured;
    }
}
