"""The protocol: the bytes on the wire, and nothing else.

    schema.txt   every message of an Apache Kafka 3.8 broker in ZooKeeper mode, in one text that explains itself
    schema       reads that text, a message at a time
    classes      makes the class of a message from it; `messages` is where they are imported from
    codec        decode and encode, compiled on first use by `decoder` and `encoder`
    frames       what stands around a message: sizes and headers
    apis         which requests there are, by api key

Importing reads and compiles next to nothing: a message costs something only once it is used.
"""
