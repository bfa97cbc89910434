import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.cluster.EndPoint;
import kafka.server.ConfigAdminManager;
import kafka.server.ConfigHelper;
import kafka.server.DynamicBrokerConfig$;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.DescribeConfigsRequestData.DescribeConfigsResource;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResourceResult;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Kafka's own tables of settings, and what Kafka makes of texts: one JSON list of questions in, one of answers out. */
public final class SettingsOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final ConfigDef BROKER = KafkaConfig.configDef();
    private static final ConfigDef TOPIC = LogConfig.configDefCopy();

    private SettingsOracle() { }

    public static void main(String[] args) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (JsonNode question : JSON.readTree(System.in)) {
            try {
                answers.add(Map.of("ok", answer(question)));
            } catch (Exception refused) {
                answers.add(Map.of("refused", String.valueOf(refused.getMessage())));
            }
        }
        JSON.writeValue(System.out, answers);
    }

    private static Object answer(JsonNode question) {
        return switch (question.get("ask").asText()) {
            case "tables" -> tables();
            case "read" -> read(question);
            case "start" -> start(strings(question.get("static")));
            case "describe broker" -> describeBroker(question, "1");
            case "describe brokers" -> describeBroker(question, "");
            case "describe topic" -> describeTopic(question);
            case "change" -> change(question);
            case "check topic" -> checkTopic(question);
            case "check broker" -> checkBroker(question);
            default -> throw new IllegalArgumentException(question.toString());
        };
    }

    private static Object tables() {
        Map<String, Object> tables = new LinkedHashMap<>();
        tables.put("broker", rows(BROKER));
        tables.put("topic", rows(TOPIC));
        tables.put("dynamic only", rows(kafka.server.DynamicConfig.Broker$.MODULE$.brokerConfigDef()));
        tables.put("modes", DynamicBrokerConfig$.MODULE$.dynamicConfigUpdateModes());
        Map<String, Object> ofTopics = new LinkedHashMap<>();
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, synonyms) ->
            ofTopics.put(name, synonyms.stream().map(synonym -> synonym.name()).toList()));
        tables.put("from broker", ofTopics);
        Map<String, Object> synonyms = new LinkedHashMap<>();
        for (String name : BROKER.names()) {
            synonyms.put(name, CollectionConverters.asJava(DynamicBrokerConfig$.MODULE$.brokerConfigSynonyms(name, true)));
        }
        tables.put("synonyms", synonyms);
        return tables;
    }

    private static Map<String, Object> rows(ConfigDef table) {
        Map<String, Object> rows = new LinkedHashMap<>();
        for (ConfigDef.ConfigKey key : table.configKeys().values()) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("kind", key.type.toString());
            row.put("default", ConfigDef.convertToString(key.defaultValue, key.type));
            row.put("valid", key.validator == null ? "" : key.validator.toString());
            row.put("importance", key.importance.toString());
            row.put("internal", key.internalConfig);
            rows.put(key.name, row);
        }
        return rows;
    }

    /** One text under one name. */
    private static Object read(JsonNode question) {
        ConfigDef table = question.get("topic").asBoolean() ? TOPIC : BROKER;
        ConfigDef.ConfigKey key = table.configKeys().get(question.get("name").asText());
        Object value = ConfigDef.parseType(key.name, question.get("text").asText(), key.type);
        if (key.validator != null) {
            key.validator.ensureValid(key.name, value);
        }
        return ConfigDef.convertToString(value, key.type);
    }

    private static Object start(Map<String, String> properties) {
        KafkaConfig config = config(properties);
        Map<String, Object> topics = config.extractLogConfigMap();
        LogConfig.validateBrokerLogConfigValues(topics, false);
        LogConfig defaults = new LogConfig(topics);
        Map<String, Object> started = new LinkedHashMap<>();
        started.put("topics", written(defaults.values(), TOPIC));
        started.put("listeners", endPoints(config.listeners()));
        started.put("advertised", endPoints(config.effectiveAdvertisedListeners()));
        started.put("inter broker", config.interBrokerListenerName().value());
        started.put("log dirs", CollectionConverters.asJava(config.logDirs()));
        started.put("broker id", config.brokerId());
        started.put("zookeeper connection timeout", config.zkConnectionTimeoutMs());
        return started;
    }

    private static KafkaConfig config(Map<String, String> properties) {
        return KafkaConfig.fromProps(asProperties(properties), false);
    }

    private static Map<String, String> written(Map<String, ?> values, ConfigDef table) {
        Map<String, String> written = new LinkedHashMap<>();
        values.forEach((name, value) ->
            written.put(name, ConfigDef.convertToString(value, table.configKeys().get(name).type)));
        return written;
    }

    private static List<List<String>> endPoints(scala.collection.Seq<EndPoint> points) {
        List<List<String>> found = new ArrayList<>();
        for (EndPoint point : CollectionConverters.asJava(points)) {
            found.add(List.of(point.listenerName().value(), point.securityProtocol().name,
                point.host() == null ? "" : point.host(), String.valueOf(point.port())));
        }
        return found;
    }

    /** A running broker's config, with what was set while it runs. */
    private static KafkaConfig running(JsonNode question) {
        KafkaConfig config = config(strings(question.get("static")));
        config.dynamicConfig().initialize(Option.empty(), Option.empty());
        config.dynamicConfig().updateDefaultConfig(asProperties(strings(question.get("dynamic default"))), false);
        config.dynamicConfig().updateBrokerConfig(1, asProperties(strings(question.get("dynamic broker"))), false);
        return config;
    }

    private static Object describeBroker(JsonNode question, String name) {
        ConfigHelper helper = new ConfigHelper(null, running(question), null);
        DescribeConfigsResource broker = new DescribeConfigsResource()
            .setResourceType(ConfigResource.Type.BROKER.id()).setResourceName(name).setConfigurationKeys(null);
        scala.collection.immutable.List<DescribeConfigsResource> all =
            CollectionConverters.asScala(List.of(broker)).toList();
        return entries(CollectionConverters.asJava(helper.describeConfigs(all, true, false)).get(0).configs());
    }

    private static Object describeTopic(JsonNode question) {
        KafkaConfig config = running(question);
        ConfigHelper helper = new ConfigHelper(null, config, null);
        Properties overrides = asProperties(strings(question.get("overrides")));
        LogConfig log = LogConfig.fromProps(config.extractLogConfigMap(), overrides);
        List<DescribeConfigsResourceResult> entries = new ArrayList<>();
        log.nonInternalValues().forEach((name, value) ->
            entries.add(helper.createTopicConfigEntry(log, overrides, true, false, name, value)));
        return entries(entries);
    }

    private static Map<String, Object> entries(List<DescribeConfigsResourceResult> described) {
        Map<String, Object> entries = new LinkedHashMap<>();
        for (DescribeConfigsResourceResult entry : described) {
            Map<String, Object> shown = new LinkedHashMap<>();
            shown.put("value", entry.value());
            shown.put("source", entry.configSource());
            shown.put("read_only", entry.readOnly());
            shown.put("sensitive", entry.isSensitive());
            shown.put("kind", entry.configType());
            List<Object> synonyms = new ArrayList<>();
            entry.synonyms().forEach(synonym -> {
                List<Object> one = new ArrayList<>();
                one.add(synonym.name());
                one.add(synonym.value());
                one.add(synonym.source());
                synonyms.add(one);
            });
            shown.put("synonyms", synonyms);
            entries.put(entry.name(), shown);
        }
        return entries;
    }

    private static Object change(JsonNode question) {
        Properties found = asProperties(strings(question.get("current")));
        List<AlterConfigOp> changes = new ArrayList<>();
        for (JsonNode change : question.get("changes")) {
            changes.add(new AlterConfigOp(
                new ConfigEntry(change.get(0).asText(), change.get(2).isNull() ? null : change.get(2).asText()),
                AlterConfigOp.OpType.forId((byte) change.get(1).asInt())));
        }
        ConfigAdminManager.prepareIncrementalConfigs(
            CollectionConverters.asScala(changes).toSeq(), found, CollectionConverters.asScala(LogConfig.configKeys()));
        return found;
    }

    private static Object checkTopic(JsonNode question) {
        KafkaConfig config = config(strings(question.get("static")));
        LogConfig.validate(asProperties(strings(question.get("overrides"))), config.extractLogConfigMap(), false);
        return true;
    }

    private static Object checkBroker(JsonNode question) {
        running(question).dynamicConfig()
            .validate(asProperties(strings(question.get("proposed"))), !question.get("for all").asBoolean());
        return true;
    }

    private static Properties asProperties(Map<String, String> strings) {
        Properties properties = new Properties();
        properties.putAll(strings);
        return properties;
    }

    private static Map<String, String> strings(JsonNode node) {
        Map<String, String> strings = new LinkedHashMap<>();
        node.fields().forEachRemaining(field -> strings.put(field.getKey(), field.getValue().asText()));
        return strings;
    }
}
