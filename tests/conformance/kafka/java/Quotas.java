import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/**
 * Kafka's own measures of quotas. Each line of stdin is a history: `rate` or `bucket`, the quota, the samples, their
 * seconds, then pairs of a value and the time in milliseconds at which it is recorded. What is answered for each pair, on
 * one line: of a rate the measured value, its window and the throttle time; of a bucket the tokens and the throttle time.
 */
public final class Quotas {
    private Quotas() { }

    public static void main(String[] args) throws Exception {
        BufferedReader histories = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = histories.readLine(); line != null; line = histories.readLine()) {
            String[] words = line.split(" ");
            MetricConfig config = new MetricConfig()
                .quota(Quota.upperBound(Double.parseDouble(words[1])))
                .samples(Integer.parseInt(words[2]))
                .timeWindow(Long.parseLong(words[3]), TimeUnit.SECONDS);
            System.out.println(words[0].equals("rate") ? rate(config, words) : bucket(config, words));
        }
    }

    private static String rate(MetricConfig config, String[] words) {
        Rate rate = new Rate();
        StringBuilder answers = new StringBuilder();
        for (int at = 4; at < words.length; at += 2) {
            long now = Long.parseLong(words[at + 1]);
            rate.record(config, Double.parseDouble(words[at]), now);
            double value = rate.measure(config, now);
            double bound = config.quota().bound();
            long window = rate.windowSize(config, now);
            long throttle = config.quota().acceptable(value) ? 0 : Math.round((value - bound) / bound * window);
            answers.append(value).append(' ').append(window).append(' ').append(throttle).append(' ');
        }
        return answers.toString();
    }

    private static String bucket(MetricConfig config, String[] words) {
        TokenBucket bucket = new TokenBucket();
        StringBuilder answers = new StringBuilder();
        for (int at = 4; at < words.length; at += 2) {
            long now = Long.parseLong(words[at + 1]);
            bucket.record(config, Double.parseDouble(words[at]), now);
            double tokens = bucket.measure(config, now);
            long throttle = tokens < 0 ? Math.round(-tokens / config.quota().bound() * 1000) : 0;
            answers.append(tokens).append(' ').append(throttle).append(' ');
        }
        return answers.toString();
    }
}
