import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.clients.FetchSessionHandler;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.utils.LogContext;

/** Kafka's fetch session on the side of who fetches. A partition is a list: topic, its id as a number, partition. */
final class FetchSessions {
    private FetchSessionHandler session;

    Object open() {
        session = new FetchSessionHandler(new LogContext(), 1);
        return null;
    }

    /** Each wanted one with its offset behind it. */
    Object next(JsonNode request) {
        FetchSessionHandler.Builder builder = session.newBuilder();
        for (JsonNode wanted : request.get("wanted")) {
            builder.add(
                new TopicPartition(wanted.get(0).asText(), wanted.get(2).asInt()),
                new FetchRequest.PartitionData(
                    new Uuid(0, wanted.get(1).asLong()), wanted.get(3).asLong(), 0, 1000, Optional.of(3)));
        }
        FetchSessionHandler.FetchRequestData data = builder.build();
        List<Object> named = new ArrayList<>();
        data.toSend().forEach((tp, position) -> named.add(new Object[] {
            tp.topic(), position.topicId.getLeastSignificantBits(), tp.partition(), position.fetchOffset}));
        return Json.object(
            "session_id", data.metadata().sessionId(),
            "session_epoch", data.metadata().epoch(),
            "named", named,
            "forgotten", described(data.toForget()),
            "replaced", described(data.toReplace()),
            "by_id", data.canUseTopicIds(),
            "covers", data.sessionPartitions().size());
    }

    private static List<Object> described(List<TopicIdPartition> partitions) {
        List<Object> described = new ArrayList<>();
        for (TopicIdPartition one : partitions) {
            described.add(new Object[] {one.topic(), one.topicId().getLeastSignificantBits(), one.partition()});
        }
        return described;
    }

    /** Whether the answer is to be used. */
    Object received(JsonNode request) {
        LinkedHashMap<TopicIdPartition, FetchResponseData.PartitionData> answered = new LinkedHashMap<>();
        for (JsonNode one : request.get("answered")) {
            answered.put(
                new TopicIdPartition(new Uuid(0, one.get(1).asLong()), one.get(2).asInt(), one.get(0).asText()),
                new FetchResponseData.PartitionData().setPartitionIndex(one.get(2).asInt()));
        }
        FetchResponse response = FetchResponse.of(
            Errors.forCode((short) request.get("code").asInt()),
            request.get("throttle_ms").asInt(),
            request.get("session_id").asInt(),
            answered);
        short version = request.get("by_id").asBoolean() ? ApiKeys.FETCH.latestVersion() : 12;
        return session.handleResponse(response, version);
    }

    Object failed() {
        session.handleError(new RuntimeException("no answer"));
        return null;
    }
}
