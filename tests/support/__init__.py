"""What tests of several kinds share, a line for each module:

broker             a Leadline broker in a process of its own
brokers            brokers in one process that fetch from each other, with a controller of plain state
chance             randomness that a seed repeats
cluster            ZooKeeper and Leadline brokers as processes, and the faults that they can meet
commands           the command `leadline` in a process of its own
compiled           the compiled part of the decoder
controlled         the controller's decisions, carried out on plain state and checked at each step
crash_disk         a disk whose power can fail after any operation
damage             damaged batches and files
decoded            records as the decoder returns them
dirs               log directories on a clock to set
fetch_sessions     the fetch positions of a follower, as a whole
following          a topic with records, and tables that follow it
hosted             a partition on a broker without sockets and controller
in_memory          temporary directories in memory
in_memory_broker   a whole broker without a JVM, sockets or a disk
in_process         a broker in the process of the test
inline_background  `Background` without threads
lazy_disk          the thread of a log directory without a thread
logs               logs, batches and a clock to set
members            hundreds of group members over plain sockets
memory_network     a network in the memory of one process
namespaces         network namespaces between which packets can be lost
network            proxies between servers whose connections can be cut
pipeline_faults    workers, disk space and files taken from a pipeline while it runs
producers          batches of producers, as headers
proxy              a TCP proxy that can lose answers
replica_files      the replicas of a partition in log directories
replicas           replicas of one partition and their controller as plain state
slow_disk          a disk whose fsync takes as long as the test says
steps              the pipeline's client of a cluster, stopped between two steps
topics             topics created through confluent-kafka
transactions       the transaction coordinator on real logs, in a process that can be killed
waiting            waits until a condition holds, within a bound
watched_files      files that report each operation before it is done
"""
