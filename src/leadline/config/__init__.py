"""Settings under Kafka's own names, as tables: name, type, default, validity, mode and meaning of each.

`topic.LogConfig` holds the settings of a topic, `storage.StorageConfig` those of a broker for its logs, and
`broker.BrokerConfig` all settings of a broker. Import a table from its module: a process that only opens logs, such as
the one that compacts them, then starts without the tables of a broker.
"""
