package main

import (
	"context"
	"encoding/json"
	"net"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type saramas struct {
	bootstrap []string
	login     *Login
	client    sarama.Client
	admin     sarama.ClusterAdmin
}

// newSarama connects for the calls of an administrator only without a login: others connect when they are made.
func newSarama(bootstrap string, login *Login) client {
	made := &saramas{bootstrap: []string{bootstrap}, login: login}
	if login != nil {
		return made
	}
	var err error
	if made.client, err = sarama.NewClient(made.bootstrap, made.config()); err != nil {
		panic(err)
	}
	if made.admin, err = sarama.NewClusterAdminFromClient(made.client); err != nil {
		panic(err)
	}
	return made
}

func (s *saramas) close() {}

func (s *saramas) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_8_0_0
	config.ChannelBufferSize = 4096 // as many as are read at once: a partition that is read later holds up none
	config.Consumer.Return.Errors = true
	s.login.sarama(config)
	return config
}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var saramaOperations = map[string]sarama.IncrementalAlterConfigsOperation{
	"SET":      sarama.IncrementalAlterConfigsOperationSet,
	"DELETE":   sarama.IncrementalAlterConfigsOperationDelete,
	"APPEND":   sarama.IncrementalAlterConfigsOperationAppend,
	"SUBTRACT": sarama.IncrementalAlterConfigsOperationSubtract,
}

func (s *saramas) serve(asked Request) (any, error) {
	admin, topic := s.admin, asked.Topic
	switch asked.Op {
	case "produce":
		return s.produce(asked)
	case "consume":
		return s.consume(asked)
	case "write_transaction":
		return s.writeTransaction(asked)
	case "read_in_group":
		return s.readInGroup(asked)
	case "committed_offsets":
		found, err := admin.ListConsumerGroupOffsets(asked.Group, nil)
		if err != nil {
			return nil, err
		}
		offsets := map[int32]int64{}
		for _, blocks := range found.Blocks {
			for partition, block := range blocks {
				offsets[partition] = block.Offset
			}
		}
		return offsets, nil
	case "describe_group":
		found, err := admin.DescribeConsumerGroups([]string{asked.Group})
		if err != nil {
			return nil, err
		}
		return []any{found[0].State, len(found[0].Members)}, nil
	case "list_groups":
		found, err := admin.ListConsumerGroups()
		names := []string{}
		for name := range found {
			names = append(names, name)
		}
		return names, err
	case "delete_group":
		return nil, admin.DeleteConsumerGroup(asked.Group)
	case "create_topic":
		detail := &sarama.TopicDetail{NumPartitions: asked.Partitions, ReplicationFactor: 1, ConfigEntries: asked.Config}
		return nil, admin.CreateTopic(topic, detail, false)
	case "delete_topic":
		return nil, admin.DeleteTopic(topic)
	case "list_topics":
		found, err := admin.ListTopics()
		names := []string{}
		for name := range found {
			names = append(names, name)
		}
		return names, err
	case "describe_topic":
		found, err := admin.DescribeTopics([]string{topic})
		if err != nil {
			return nil, err
		}
		leaders := make([]int32, len(found[0].Partitions))
		for _, partition := range found[0].Partitions {
			leaders[partition.ID] = partition.Leader
		}
		if found[0].Err != sarama.ErrNoError {
			return nil, found[0].Err
		}
		return leaders, nil
	case "describe_config":
		found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
		settings := map[string]string{}
		for _, entry := range found {
			settings[entry.Name] = entry.Value
		}
		return settings, err
	case "set_config":
		return nil, admin.AlterConfig(sarama.TopicResource, topic, asked.Config, false)
	case "alter_config":
		entries := map[string]sarama.IncrementalAlterConfigsEntry{}
		for _, change := range asked.Changes {
			operation := saramaOperations[change[0]]
			entries[change[1]] = sarama.IncrementalAlterConfigsEntry{Operation: operation, Value: &change[2]}
		}
		return nil, admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false)
	case "create_partitions":
		return nil, admin.CreatePartitions(topic, asked.Total, nil, false)
	case "delete_records":
		if err := admin.DeleteRecords(topic, map[int32]int64{asked.Partition: asked.Before}); err != nil {
			return nil, err
		}
		return s.client.GetOffset(topic, asked.Partition, sarama.OffsetOldest)
	case "describe_log_dirs":
		return s.describeLogDirs(topic)
	case "describe_cluster":
		found, controller, err := admin.DescribeCluster()
		brokers := [][]any{}
		for _, broker := range found {
			host, port, _ := net.SplitHostPort(broker.Addr())
			brokers = append(brokers, []any{broker.ID(), host, json.Number(port)})
		}
		return map[string]any{"controller": controller, "brokers": brokers}, err
	case "list_offset":
		return s.listOffset(asked)
	}
	return nil, errLacking
}

func (s *saramas) listOffset(asked Request) (any, error) {
	if err := s.client.RefreshMetadata(asked.Topic); err != nil {
		return nil, err
	}
	switch asked.At {
	case "earliest":
		return s.client.GetOffset(asked.Topic, asked.Partition, sarama.OffsetOldest)
	case "latest":
		return s.client.GetOffset(asked.Topic, asked.Partition, sarama.OffsetNewest)
	case "max":
		return nil, errLacking
	}
	return s.client.GetOffset(asked.Topic, asked.Partition, int64(asked.At.(float64)))
}

func (s *saramas) describeLogDirs(topic string) (any, error) {
	sizes := map[int32]int64{}
	ids := []int32{}
	for _, broker := range s.client.Brokers() {
		ids = append(ids, broker.ID())
	}
	found, err := s.admin.DescribeLogDirs(ids)
	for _, directories := range found {
		for _, directory := range directories {
			for _, described := range directory.Topics {
				for _, partition := range described.Partitions {
					if described.Topic == topic {
						sizes[partition.PartitionID] = partition.Size
					}
				}
			}
		}
	}
	return sizes, err
}

func (s *saramas) produce(asked Request) (any, error) {
	config := s.producing()
	config.Producer.Compression = saramaCodecs[asked.Codec]
	if asked.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(s.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	return saramaSend(producer, asked)
}

func (s *saramas) producing() *sarama.Config {
	config := s.config()
	config.Producer.Return.Successes = true
	if s.login == nil {
		config.Producer.Retry.Max = 50
		config.Metadata.Retry.Max = 50
	}
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Flush.Frequency = 50 * time.Millisecond
	return config
}

// saramaSend gives the offsets once all records have arrived.
func saramaSend(producer sarama.SyncProducer, asked Request) ([]int64, error) {
	messages := []*sarama.ProducerMessage{}
	for _, record := range asked.Records {
		message := &sarama.ProducerMessage{Topic: asked.Topic, Partition: record.Partition, Timestamp: record.Timestamp}
		if record.Key != nil {
			message.Key = sarama.ByteEncoder(record.Key)
		}
		if record.Value != nil {
			message.Value = sarama.ByteEncoder(record.Value)
		}
		for _, header := range record.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		messages = append(messages, message)
	}
	err := producer.SendMessages(messages)
	if all, ok := err.(sarama.ProducerErrors); ok {
		err = all[0].Err
	}
	offsets := []int64{}
	for _, message := range messages {
		offsets = append(offsets, message.Offset)
	}
	return offsets, err
}

func (s *saramas) writeTransaction(asked Request) (any, error) {
	config := s.producing()
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = asked.ID
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(s.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return nil, err
	}
	offsets, err := saramaSend(producer, asked)
	if err != nil {
		return nil, err
	}
	if asked.Commit {
		return offsets, producer.CommitTxn()
	}
	return offsets, producer.AbortTxn()
}

func (s *saramas) consume(asked Request) (any, error) {
	reader, err := sarama.NewConsumer(s.bootstrap, s.config())
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	found, late := [][]any{}, time.After(wait)
	partitions := make([]sarama.PartitionConsumer, len(asked.Starts))
	for n, start := range asked.Starts {
		if partitions[n], err = reader.ConsumePartition(asked.Topic, int32(start[0]), start[1]); err != nil {
			return nil, err
		}
		defer partitions[n].AsyncClose()
	}
	for n, partition := range partitions {
		for range asked.Starts[n][2] {
			select {
			case message := <-partition.Messages():
				found = append(found, saramaShown(message))
			case err := <-partition.Errors():
				return nil, err
			case <-late:
				return found, nil
			}
		}
	}
	return found, nil
}

func saramaShown(message *sarama.ConsumerMessage) []any {
	headers := [][]any{}
	for _, header := range message.Headers {
		headers = append(headers, []any{string(header.Key), shown(header.Value)})
	}
	return []any{
		message.Partition, message.Offset, message.Timestamp.UnixMilli(), shown(message.Key), shown(message.Value), headers,
	}
}

func (s *saramas) readInGroup(asked Request) (any, error) {
	config := s.config()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	if asked.Isolation == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	member, err := sarama.NewConsumerGroup(s.bootstrap, asked.Group, config)
	if err != nil {
		return nil, err
	}
	defer member.Close()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	read := &saramaReading{wanted: asked.Count, finish: cancel}
	for ctx.Err() == nil {
		if err := member.Consume(ctx, []string{asked.Topic}, read); err != nil {
			return nil, err
		}
	}
	return read.found, nil
}

// saramaReading is one member that reads so many records, commits them as it goes, and is done.
type saramaReading struct {
	lock   sync.Mutex
	wanted int64
	found  [][]any
	finish func()
}

func (r *saramaReading) Setup(sarama.ConsumerGroupSession) error { return nil }

func (r *saramaReading) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (r *saramaReading) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		if !r.take(session, message) {
			return nil
		}
	}
	return nil
}

func (r *saramaReading) take(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	if int64(len(r.found)) < r.wanted {
		r.found = append(r.found, saramaShown(message))
		session.MarkMessage(message, "")
	}
	if int64(len(r.found)) == r.wanted {
		r.finish()
		return false
	}
	return true
}
