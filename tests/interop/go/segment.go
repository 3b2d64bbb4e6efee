package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/segmentio/kafka-go"
)

// kafka-go's group below its Reader, which does not say what it is assigned.
func segmentMember(told job, tells *teller) func() {
	group := must(kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: told.group, Brokers: told.addresses, Dialer: &kafka.Dialer{ClientID: told.client}, Topics: []string{told.topic},
		GroupBalancers: []kafka.GroupBalancer{kafka.RangeGroupBalancer{}}, SessionTimeout: told.session(),
		HeartbeatInterval: heartbeat, RebalanceTimeout: session, JoinGroupBackoff: heartbeat, StartOffset: kafka.FirstOffset,
	}))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			generation, err := group.Next(ctx)
			if err != nil {
				continue // it waits by itself before it joins again
			}
			partitions := []int32{}
			for _, given := range generation.Assignments[told.topic] {
				partitions = append(partitions, int32(given.ID))
				generation.Start(func(ctx context.Context) { segmentRead(ctx, told, generation, given, tells) })
			}
			tells.set(partitions)
		}
	}()
	return func() {
		stop()
		group.Close()
		<-done
	}
}

var committing sync.Mutex

func segmentRead(ctx context.Context, told job, generation *kafka.Generation, given kafka.PartitionAssignment, tells *teller) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: told.addresses, Topic: told.topic, Partition: given.ID, MaxWait: heartbeat, ReadBackoffMax: heartbeat,
	})
	defer reader.Close()
	if reader.SetOffset(given.Offset) != nil {
		return
	}
	for {
		message, err := reader.ReadMessage(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			continue
		}
		tells.read(int32(message.Partition), message.Offset)
		committing.Lock()
		generation.CommitOffsets(map[string]map[int]int64{told.topic: {message.Partition: message.Offset + 1}})
		committing.Unlock()
	}
}

func segmentLog(address, topic string) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	client := &kafka.Client{Addr: kafka.TCP(address)}
	made := must(client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}},
	}))
	check(made.Errors[topic])
	fmt.Println("created", 0)
	writer := &kafka.Writer{
		Addr: kafka.TCP(address), Topic: topic, Compression: kafka.Snappy, RequiredAcks: kafka.RequireAll, BatchSize: 1,
	}
	for number := range 3 {
		check(writer.WriteMessages(ctx, kafka.Message{
			Key: []byte(fmt.Sprint("k", number)), Value: make([]byte, 1000), Headers: []kafka.Header{{Key: "trace", Value: []byte("abc")}},
		}))
	}
	check(writer.Close())
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{address}, Topic: topic, MaxWait: heartbeat})
	for range 3 {
		m := must(reader.ReadMessage(ctx))
		show(int32(m.Partition), m.Offset, m.Key, m.Value, map[string]string{m.Headers[0].Key: string(m.Headers[0].Value)})
	}
}
