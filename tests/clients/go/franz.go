package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct {
	common []kgo.Opt
	admin  *kadm.Client
	login  *Login
}

func newFranz(bootstrap string, login *Login) client {
	common := append(login.franz(), kgo.SeedBrokers(bootstrap))
	admin, err := kadm.NewOptClient(common...)
	if err != nil {
		panic(err)
	}
	return &franz{common, admin, login}
}

func (f *franz) close() { f.admin.Close() }

// newClient fails where the login does. Without a request that answers, a client repeats it until the time is over.
func (f *franz) newClient(ctx context.Context, options ...kgo.Opt) (*kgo.Client, error) {
	made, err := kgo.NewClient(append(options, f.common...)...)
	if err != nil || f.login == nil {
		return made, err
	}
	if err := made.Ping(ctx); err != nil {
		made.Close()
		return nil, err
	}
	return made, nil
}

var franzCodecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var franzOperations = map[string]kadm.IncrementalOp{
	"SET": kadm.SetConfig, "DELETE": kadm.DeleteConfig, "APPEND": kadm.AppendConfig, "SUBTRACT": kadm.SubtractConfig,
}

func (f *franz) serve(asked Request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	admin, topic := f.admin, asked.Topic
	switch asked.Op {
	case "produce":
		return f.produce(ctx, asked)
	case "consume":
		return f.consume(ctx, asked)
	case "write_transaction":
		return f.writeTransaction(ctx, asked)
	case "read_in_group":
		return f.readInGroup(ctx, asked)
	case "committed_offsets":
		found, err := admin.FetchOffsets(ctx, asked.Group)
		offsets := map[int32]int64{}
		found.Each(func(of kadm.OffsetResponse) { offsets[of.Partition] = of.At })
		return offsets, err
	case "describe_group":
		found, err := admin.DescribeGroups(ctx, asked.Group)
		group := found[asked.Group]
		return []any{group.State, len(group.Members)}, first(err, found.Error())
	case "list_groups":
		found, err := admin.ListGroups(ctx)
		return found.Groups(), err
	case "delete_group":
		found, err := admin.DeleteGroup(ctx, asked.Group)
		return nil, first(err, found.Err)
	case "create_topic":
		_, err := admin.CreateTopic(ctx, asked.Partitions, 1, asked.Config, topic)
		return nil, err
	case "delete_topic":
		_, err := admin.DeleteTopic(ctx, topic)
		return nil, err
	case "list_topics":
		found, err := admin.ListTopics(ctx)
		return found.Names(), err
	case "describe_topic":
		found, err := admin.ListTopics(ctx, topic)
		leaders := []int32{}
		for _, partition := range found[topic].Partitions.Sorted() {
			leaders = append(leaders, partition.Leader)
		}
		return leaders, first(err, found.Error())
	case "describe_config":
		found, err := admin.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return nil, err
		}
		settings := map[string]*string{}
		for _, entry := range found[0].Configs {
			settings[entry.Key] = entry.Value
		}
		return settings, found[0].Err
	case "set_config":
		wanted := []kadm.AlterConfig{}
		for name, value := range asked.Config {
			wanted = append(wanted, kadm.AlterConfig{Name: name, Value: value})
		}
		found, err := admin.AlterTopicConfigsState(ctx, wanted, topic)
		if err != nil {
			return nil, err
		}
		return nil, found[0].Err
	case "alter_config":
		wanted := []kadm.AlterConfig{}
		for _, change := range asked.Changes {
			entry := kadm.AlterConfig{Op: franzOperations[change[0]], Name: change[1], Value: &change[2]}
			wanted = append(wanted, entry)
		}
		found, err := admin.AlterTopicConfigs(ctx, wanted, topic)
		if err != nil {
			return nil, err
		}
		return nil, found[0].Err
	case "create_partitions":
		found, err := admin.UpdatePartitions(ctx, int(asked.Total), topic)
		return nil, first(err, found.Error())
	case "delete_records":
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, asked.Partition, asked.Before, -1)
		found, err := admin.DeleteRecords(ctx, offsets)
		return found[topic][asked.Partition].LowWatermark, first(err, found.Error())
	case "describe_log_dirs":
		found, err := admin.DescribeAllLogDirs(ctx, nil)
		sizes := map[int32]int64{}
		found.Each(func(directory kadm.DescribedLogDir) {
			for _, partition := range directory.Topics[topic] {
				sizes[partition.Partition] = partition.Size
			}
		})
		return sizes, err
	case "describe_cluster":
		found, err := admin.BrokerMetadata(ctx)
		brokers := [][]any{}
		for _, broker := range found.Brokers {
			brokers = append(brokers, []any{broker.NodeID, broker.Host, broker.Port})
		}
		return map[string]any{"cluster": found.Cluster, "controller": found.Controller, "brokers": brokers}, err
	case "list_offset":
		found, err := f.listOffsets(ctx, asked)
		return found[topic][asked.Partition].Offset, first(err, found.Error())
	}
	return nil, errLacking
}

func (f *franz) listOffsets(ctx context.Context, asked Request) (kadm.ListedOffsets, error) {
	switch asked.At {
	case "earliest":
		return f.admin.ListStartOffsets(ctx, asked.Topic)
	case "latest":
		return f.admin.ListEndOffsets(ctx, asked.Topic)
	case "max":
		return f.admin.ListMaxTimestampOffsets(ctx, asked.Topic)
	}
	return f.admin.ListOffsetsAfterMilli(ctx, int64(asked.At.(float64)), asked.Topic)
}

func (f *franz) produce(ctx context.Context, asked Request) (any, error) {
	options := []kgo.Opt{
		kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(franzCodecs[asked.Codec]),
		kgo.ProducerLinger(wait / 600),
	}
	if !asked.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer, err := f.newClient(ctx, options...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	return franzSend(ctx, producer, asked)
}

// franzSend gives the offsets once all records have arrived.
func franzSend(ctx context.Context, producer *kgo.Client, asked Request) ([]int64, error) {
	records := []*kgo.Record{}
	for _, record := range asked.Records {
		headers := []kgo.RecordHeader{}
		for _, header := range record.Headers {
			headers = append(headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		records = append(records, &kgo.Record{
			Topic: asked.Topic, Partition: record.Partition, Key: record.Key, Value: record.Value, Headers: headers,
			Timestamp: record.Timestamp,
		})
	}
	err := producer.ProduceSync(ctx, records...).FirstErr()
	offsets := []int64{}
	for _, record := range records {
		offsets = append(offsets, record.Offset)
	}
	return offsets, err
}

func (f *franz) writeTransaction(ctx context.Context, asked Request) (any, error) {
	producer, err := f.newClient(
		ctx, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(asked.ID))
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := producer.BeginTransaction(); err != nil {
		return nil, err
	}
	offsets, err := franzSend(ctx, producer, asked)
	return offsets, first(err, producer.EndTransaction(ctx, kgo.TransactionEndTry(asked.Commit)))
}

func (f *franz) readInGroup(ctx context.Context, asked Request) (any, error) {
	isolation := kgo.ReadUncommitted()
	if asked.Isolation == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	member, err := f.newClient(
		ctx, kgo.ConsumerGroup(asked.Group), kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(isolation), kgo.DisableAutoCommit())
	if err != nil {
		return nil, err
	}
	defer member.Close()
	found, read := [][]any{}, []*kgo.Record{}
	for int64(len(found)) < asked.Count {
		fetched := member.PollRecords(ctx, int(asked.Count)-len(found))
		if err := fetched.Err(); err != nil {
			return nil, fmt.Errorf("after %d records: %w", len(found), err)
		}
		fetched.EachRecord(func(record *kgo.Record) {
			found, read = append(found, franzShown(record)), append(read, record)
		})
	}
	return found, member.CommitRecords(ctx, read...)
}

func (f *franz) consume(ctx context.Context, asked Request) (any, error) {
	from, wanted := map[int32]kgo.Offset{}, int64(0)
	for _, start := range asked.Starts {
		from[int32(start[0])] = kgo.NewOffset().At(start[1])
		wanted += start[2]
	}
	reader, err := f.newClient(
		ctx, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: from}))
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	found := [][]any{}
	for int64(len(found)) < wanted {
		fetched := reader.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return nil, fmt.Errorf("after %d records: %w", len(found), err)
		}
		fetched.EachRecord(func(record *kgo.Record) { found = append(found, franzShown(record)) })
	}
	return found, nil
}

func franzShown(record *kgo.Record) []any {
	headers := [][]any{}
	for _, header := range record.Headers {
		headers = append(headers, []any{header.Key, shown(header.Value)})
	}
	return []any{
		record.Partition, record.Offset, record.Timestamp.UnixMilli(), shown(record.Key), shown(record.Value), headers,
	}
}

func first(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}
