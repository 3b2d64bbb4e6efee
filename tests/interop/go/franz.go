package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func franzMember(told job, tells *teller) func() {
	ctx := context.Background()
	if told.assignor == "consumer" {
		ctx = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)
	}
	options := []kgo.Opt{
		kgo.WithContext(ctx),
		kgo.SeedBrokers(told.addresses...),
		kgo.ClientID(told.client),
		kgo.ConsumerGroup(told.group),
		kgo.ConsumeTopics(told.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(told.session()),
		kgo.HeartbeatInterval(heartbeat),
		kgo.FetchMaxWait(heartbeat),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) { tells.gain(given[told.topic]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) { tells.lose(taken[told.topic]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) { tells.lose(taken[told.topic]) }),
	}
	if balancer := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}[told.assignor]; balancer != nil {
		options = append(options, kgo.Balancers(balancer))
	}
	if told.instance != "" {
		options = append(options, kgo.InstanceID(told.instance))
	}
	client := must(kgo.NewClient(options...))
	go func() {
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			fetches.EachRecord(func(record *kgo.Record) { tells.read(record.Partition, record.Offset) })
			client.CommitUncommittedOffsets(context.Background()) // refused while the group moves; the next one says it again
		}
	}()
	return client.Close
}

func franzLog(address, topic string) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	client := must(kgo.NewClient(
		kgo.SeedBrokers(strings.Split(address, ",")...),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	))
	defer client.Close()
	request := kmsg.NewPtrCreateTopicsRequest()
	asked := kmsg.NewCreateTopicsRequestTopic()
	asked.Topic, asked.NumPartitions, asked.ReplicationFactor = topic, 1, 1
	request.Topics = append(request.Topics, asked)
	made := must(request.RequestWith(ctx, client))
	fmt.Println("created", made.Topics[0].ErrorCode)
	for number := range 3 {
		check(client.ProduceSync(ctx, &kgo.Record{
			Topic: topic, Key: []byte(fmt.Sprint("k", number)), Value: make([]byte, 1000),
			Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("abc")}},
		}).FirstErr())
	}
	for seen := 0; seen < 3; {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			show(r.Partition, r.Offset, r.Key, r.Value, map[string]string{r.Headers[0].Key: string(r.Headers[0].Value)})
			seen++
		})
	}
}

// franzTransactions moves the records of a topic to TOPIC.out, each once, by transactions that carry its group's
// positions; every third one is aborted and done again.
func franzTransactions(address, topic string, records int) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	session := must(kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(address, ",")...),
		kgo.TransactionalID(topic+".go"),
		kgo.ConsumerGroup(topic+".go"),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	))
	defer session.Close()
	for number, moved := 0, 0; moved < records; number++ {
		fetches := session.PollRecords(ctx, 10)
		check(fetches.Err())
		check(session.Begin())
		found := 0
		sent := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			found++
			session.Produce(ctx, &kgo.Record{Topic: topic + ".out", Value: record.Value}, sent.Promise())
		})
		check(sent.Err())
		committed := must(session.End(ctx, kgo.TransactionEndTry(number%3 != 1)))
		if committed {
			moved += found
		}
	}
	fmt.Println("moved", records)
}
