import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import kafka.controller.ControllerContext;
import kafka.controller.PartitionLeaderElectionAlgorithms;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Set;
import scala.jdk.javaapi.CollectionConverters;

/** Kafka's rules of who leads. */
final class Elections {
    private Elections() { }

    /** The leader, or null if nobody qualifies. */
    static Object elect(JsonNode request) {
        Seq<Object> assigned = numbers(request.get("assigned"));
        Seq<Object> isr = numbers(request.get("isr"));
        Set<Object> alive = numbers(request.get("alive")).toSet();
        Option<Object> leader;
        switch (request.get("kind").asText()) {
            case "offline":
                leader = PartitionLeaderElectionAlgorithms.offlinePartitionLeaderElection(
                    assigned, isr, alive, request.get("unclean").asBoolean(), new ControllerContext());
                break;
            case "preferred":
                leader = PartitionLeaderElectionAlgorithms.preferredReplicaPartitionLeaderElection(assigned, isr, alive);
                break;
            case "reassigned":
                leader = PartitionLeaderElectionAlgorithms.reassignPartitionLeaderElection(assigned, isr, alive);
                break;
            default:
                leader = PartitionLeaderElectionAlgorithms.controlledShutdownPartitionLeaderElection(
                    assigned, isr, alive, numbers(request.get("shutting_down")).toSet());
        }
        return leader.isEmpty() ? null : leader.get();
    }

    private static Seq<Object> numbers(JsonNode node) {
        List<Object> numbers = new ArrayList<>();
        node.forEach(number -> numbers.add(number.asInt()));
        return CollectionConverters.asScala(numbers).toList();
    }
}
