import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

/** Kafka's own clients. Requests and answers are those of tests/clients/python/serving.py. */
public final class Client implements AutoCloseable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long WAIT_MS = 30_000;

    private static final String LOGIN = "org.apache.kafka.common.security.";

    private final Map<String, Object> common;
    private final Admin admin;  // null for a login: it would log in for nothing
    private KafkaConsumer<byte[], byte[]> reader;  // made by the first request that needs it

    private Client(Map<String, Object> common, Admin admin) {
        this.common = common;
        this.admin = admin;
    }

    @Override
    public void close() {
        if (reader != null) {
            reader.close();
        }
    }

    private static Map<String, Object> settings(JsonNode login) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", login.get("bootstrap").asText());
        settings.put("security.protocol", login.get("protocol").asText());
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", login.get("trusted").asText());
        if (login.hasNonNull("identity")) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", login.get("identity").asText());
        }
        if (login.hasNonNull("mechanism")) {
            String mechanism = login.get("mechanism").asText();
            settings.put("sasl.mechanism", mechanism);
            settings.put("sasl.jaas.config", module(mechanism) + " required" + (login.hasNonNull("username")
                ? " username=\"" + login.get("username").asText() + "\" password=\"" + login.get("password").asText() + "\";"
                : ";"));
        }
        if (login.hasNonNull("token")) {
            settings.put("sasl.login.callback.handler.class", LOGIN + "oauthbearer.OAuthBearerLoginCallbackHandler");
            settings.put("sasl.oauthbearer.token.endpoint.url", "file://" + login.get("token").asText());
        }
        return settings;
    }

    private static String module(String mechanism) {
        return LOGIN + switch (mechanism) {
            case "PLAIN" -> "plain.PlainLoginModule";
            case "OAUTHBEARER" -> "oauthbearer.OAuthBearerLoginModule";
            default -> "scram.ScramLoginModule";
        };
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> plain = Map.of("bootstrap.servers", args[0]);
        Client client = new Client(plain, Admin.create(plain));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            Map<String, Object> answer = new HashMap<>();
            try {
                JsonNode request = JSON.readTree(line);
                if (request.has("login")) {
                    try (Client loggedIn = new Client(settings(request.get("login")), null)) {
                        answer.put("result", loggedIn.serve(request));
                    }
                } else {
                    answer.put("result", client.serve(request));
                }
            } catch (Exception error) {
                answer.put("error", String.valueOf(error.getCause() == null ? error : error.getCause()));
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    private Object serve(JsonNode asked) throws Exception {
        String topic = asked.path("topic").asText();
        TopicPartition partition = new TopicPartition(topic, asked.path("partition").asInt());
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        switch (asked.get("op").asText()) {
            case "produce":
                return produce(topic, asked);
            case "consume":
                return consume(topic, asked.get("starts"));
            case "write_transaction":
                return writeTransaction(topic, asked);
            case "read_in_group":
                return readInGroup(topic, asked);
            case "committed_offsets":
                Map<Integer, Long> committed = new HashMap<>();
                admin.listConsumerGroupOffsets(asked.get("group").asText()).partitionsToOffsetAndMetadata().get()
                    .forEach((of, found) -> committed.put(of.partition(), found.offset()));
                return committed;
            case "describe_group":
                ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(asked.get("group").asText()))
                    .all().get().values().iterator().next();
                return List.of(group.state().toString(), group.members().size());
            case "list_groups":
                return admin.listConsumerGroups().all().get().stream().map(ConsumerGroupListing::groupId).toList();
            case "delete_group":
                return admin.deleteConsumerGroups(List.of(asked.get("group").asText())).all().get();
            case "create_topic":
                NewTopic wanted = new NewTopic(topic, asked.get("partitions").asInt(), (short) 1);
                return admin.createTopics(List.of(wanted.configs(strings(asked.get("config"))))).all().get();
            case "delete_topic":
                return admin.deleteTopics(List.of(topic)).all().get();
            case "list_topics":
                return admin.listTopics().names().get();
            case "describe_topic":
                return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().stream()
                    .map(found -> found.leader().id()).toList();
            case "describe_config":
                Map<String, String> settings = new HashMap<>();
                admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()
                    .forEach(entry -> settings.put(entry.name(), entry.value()));
                return settings;
            case "set_config":
                return setConfig(resource, strings(asked.get("config")));
            case "alter_config":
                return alterConfig(resource, asked.get("changes"));
            case "create_partitions":
                return admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(asked.get("total").asInt()))).all().get();
            case "delete_records":
                RecordsToDelete before = RecordsToDelete.beforeOffset(asked.get("before").asLong());
                return admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition).get().lowWatermark();
            case "describe_log_dirs":
                return describeLogDirs(topic);
            case "describe_cluster":
                DescribeClusterResult cluster = admin.describeCluster();
                List<List<Object>> brokers = new ArrayList<>();
                for (Node node : cluster.nodes().get()) {
                    brokers.add(List.of(node.id(), node.host(), node.port()));
                }
                return Map.of("cluster", cluster.clusterId().get(), "controller", cluster.controller().get().id(), "brokers", brokers);
            case "list_offset":
                return admin.listOffsets(Map.of(partition, spec(asked.get("at")))).partitionResult(partition).get().offset();
            default:
                throw new UnsupportedOperationException("lacking");
        }
    }

    private List<Long> produce(String topic, JsonNode asked) throws Exception {
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("compression.type", asked.get("codec").asText());
        settings.put("linger.ms", 50);
        settings.put("batch.size", 1_000_000);
        if (!asked.get("idempotent").asBoolean()) {
            settings.put("enable.idempotence", false);  // else as it is by default: on
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : asked.get("records")) {
                sent.add(producer.send(written(topic, record)));
            }
        }
        return offsets(sent);
    }

    private List<Long> writeTransaction(String topic, JsonNode asked) throws Exception {
        Map<String, Object> settings = with(Map.of("transactional.id", asked.get("id").asText(), "linger.ms", 50));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            for (JsonNode record : asked.get("records")) {
                sent.add(producer.send(written(topic, record)));
            }
            producer.flush();
            if (asked.get("commit").asBoolean()) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
        return offsets(sent);
    }

    private static ProducerRecord<byte[], byte[]> written(String topic, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        record.get(3).forEach(header -> headers.add(new RecordHeader(header.get(0).asText(), raw(header.get(1)))));
        return new ProducerRecord<>(
            topic, record.get(0).asInt(), record.get(4).asLong(), raw(record.get(1)), raw(record.get(2)), headers);
    }

    private static List<Long> offsets(List<Future<RecordMetadata>> sent) throws Exception {
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> done : sent) {
            offsets.add(done.get().offset());
        }
        return offsets;
    }

    private List<List<Object>> readInGroup(String topic, JsonNode asked) throws Exception {
        Map<String, Object> settings = with(Map.of(
            "group.id", asked.get("group").asText(),
            "isolation.level", asked.get("isolation").asText(),
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "max.poll.records", asked.get("count").asInt()));
        List<List<Object>> found = new ArrayList<>();
        try (Consumer<byte[], byte[]> member =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            member.subscribe(List.of(topic));
            Map<TopicPartition, OffsetAndMetadata> read = new HashMap<>();
            long deadline = System.currentTimeMillis() + WAIT_MS;
            while (found.size() < asked.get("count").asInt() && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : member.poll(Duration.ofMillis(200))) {
                    if (found.size() < asked.get("count").asInt()) {
                        found.add(shown(record));
                        TopicPartition of = new TopicPartition(topic, record.partition());
                        read.put(of, new OffsetAndMetadata(record.offset() + 1));
                    }
                }
            }
            member.commitSync(read);
        }
        return found;
    }

    private List<List<Object>> consume(String topic, JsonNode starts) throws Exception {
        Map<TopicPartition, Long> from = new HashMap<>();
        int wanted = 0;
        for (JsonNode start : starts) {
            from.put(new TopicPartition(topic, start.get(0).asInt()), start.get(1).asLong());
            wanted += start.get(2).asInt();
        }
        if (reader == null) {
            reader = new KafkaConsumer<>(
                with(Map.of("enable.auto.commit", false)), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }
        reader.assign(from.keySet());
        from.forEach(reader::seek);
        List<List<Object>> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (found.size() < wanted && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : reader.poll(Duration.ofMillis(200))) {
                found.add(shown(record));
            }
        }
        return found;
    }

    @SuppressWarnings("deprecation")  // its successor, used below, sends another request
    private Object setConfig(ConfigResource resource, Map<String, String> config) throws Exception {
        List<ConfigEntry> entries = new ArrayList<>();
        config.forEach((name, value) -> entries.add(new ConfigEntry(name, value)));
        return admin.alterConfigs(Map.of(resource, new Config(entries))).all().get();
    }

    private Object alterConfig(ConfigResource resource, JsonNode changes) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        for (JsonNode change : changes) {
            ConfigEntry entry = new ConfigEntry(change.get(1).asText(), change.get(2).asText());
            operations.add(new AlterConfigOp(entry, AlterConfigOp.OpType.valueOf(change.get(0).asText())));
        }
        return admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get();
    }

    private Map<Integer, Long> describeLogDirs(String topic) throws Exception {
        Map<Integer, Long> sizes = new HashMap<>();
        int broker = admin.describeCluster().controller().get().id();
        admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker).values().forEach(directory ->
            directory.replicaInfos().forEach((partition, info) -> {
                if (partition.topic().equals(topic)) {
                    sizes.put(partition.partition(), info.size());
                }
            }));
        return sizes;
    }

    private static OffsetSpec spec(JsonNode at) {
        return switch (at.asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(at.asLong());
        };
    }

    private Map<String, Object> with(Map<String, Object> more) {
        Map<String, Object> all = new HashMap<>(common);
        all.putAll(more);
        return all;
    }

    private static Map<String, String> strings(JsonNode object) {
        Map<String, String> found = new HashMap<>();
        object.fields().forEachRemaining(field -> found.put(field.getKey(), field.getValue().asText()));
        return found;
    }

    private static byte[] raw(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static List<Object> shown(ConsumerRecord<byte[], byte[]> record) throws Exception {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key(), shown(header.value())));
        }
        return Arrays.asList(
            record.partition(), record.offset(), record.timestamp(), shown(record.key()), shown(record.value()), headers);
    }

    private static String shown(byte[] data) throws Exception {
        if (data == null) {
            return null;
        }
        if (data.length > 1000) {
            return "sha256:" + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
        }
        return Base64.getEncoder().encodeToString(data);
    }
}
