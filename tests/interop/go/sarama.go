package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

type saramaHandler struct {
	tells *teller
	topic string
}

func (h saramaHandler) Setup(session sarama.ConsumerGroupSession) error {
	h.tells.set(session.Claims()[h.topic])
	return nil
}

func (h saramaHandler) Cleanup(sarama.ConsumerGroupSession) error {
	h.tells.set(nil)
	return nil
}

func (h saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		h.tells.read(message.Partition, message.Offset)
		session.MarkMessage(message, "")
		session.Commit()
	}
	return nil
}

func saramaConfig(client string) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = client
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.MaxWaitTime = heartbeat
	return config
}

func saramaMember(told job, tells *teller) func() {
	config := saramaConfig(told.client)
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = told.session()
	config.Consumer.Group.Heartbeat.Interval = heartbeat
	config.Consumer.Group.InstanceId = told.instance
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	config.Metadata.Retry.Max = 100 // a node that is started again is waited for
	group := must(sarama.NewConsumerGroup(told.addresses, told.group, config))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{told.topic}, saramaHandler{tells, told.topic}); err != nil {
				time.Sleep(heartbeat)
			}
		}
	}()
	return func() {
		stop()
		<-done
		group.Close()
	}
}

func saramaLog(address, topic string) {
	config := saramaConfig("story")
	config.Producer.Return.Successes = true
	config.Producer.Compression = sarama.CompressionLZ4
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	addresses := strings.Split(address, ",")
	admin := must(sarama.NewClusterAdmin(addresses, config))
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	fmt.Println("created", 0)
	producer := must(sarama.NewSyncProducer(addresses, config))
	for number := range 3 {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(fmt.Sprint("k", number)), Value: sarama.ByteEncoder(make([]byte, 1000)),
			Headers: []sarama.RecordHeader{{Key: []byte("trace"), Value: []byte("abc")}},
		})
		check(err)
	}
	consumer := must(sarama.NewConsumer(addresses, config))
	partition := must(consumer.ConsumePartition(topic, 0, sarama.OffsetOldest))
	for range 3 {
		select {
		case m := <-partition.Messages():
			show(m.Partition, m.Offset, m.Key, m.Value, map[string]string{string(m.Headers[0].Key): string(m.Headers[0].Value)})
		case err := <-partition.Errors():
			check(err)
		case <-time.After(patience):
			check(context.DeadlineExceeded)
		}
	}
}
