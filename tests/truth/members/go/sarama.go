package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

type saramaConsumer struct {
	group sarama.ConsumerGroup
	stop  context.CancelFunc
	done  chan struct{}
	tells *teller
}

func saramaMember(told job) member {
	config := sarama.NewConfig()
	config.ClientID = told.Name
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = time.Duration(told.SessionMs) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = time.Duration(told.HeartbeatMs) * time.Millisecond
	config.Consumer.Group.Rebalance.Timeout = time.Duration(told.PollMs) * time.Millisecond
	config.Consumer.Group.InstanceId = told.Instance
	config.Metadata.RefreshFrequency = time.Duration(told.MetadataMs) * time.Millisecond
	config.Metadata.AllowAutoTopicCreation = false
	config.Consumer.Group.Rebalance.GroupStrategies = nil
	for _, name := range told.Assignors {
		config.Consumer.Group.Rebalance.GroupStrategies = append(config.Consumer.Group.Rebalance.GroupStrategies,
			map[string]sarama.BalanceStrategy{
				"range": sarama.NewBalanceStrategyRange(), "roundrobin": sarama.NewBalanceStrategyRoundRobin(),
				"sticky": sarama.NewBalanceStrategySticky(),
			}[name])
	}
	ctx, cancel := context.WithCancel(context.Background())
	consumer := &saramaConsumer{stop: cancel, done: make(chan struct{}), tells: &teller{}}
	for {
		group, err := sarama.NewConsumerGroup(strings.Split(told.Address, ","), told.Group, config)
		if err == nil {
			consumer.group = group
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	go func() {
		defer close(consumer.done)
		for ctx.Err() == nil {
			if err := consumer.group.Consume(ctx, told.Topics, consumer); err != nil {
				if errors.Is(err, sarama.ErrFencedInstancedId) {
					say(map[string]any{"fatal": "FENCED_INSTANCE_ID"})
					return
				}
				time.Sleep(200 * time.Millisecond)
			}
		}
	}()
	return consumer
}

func (s *saramaConsumer) Setup(session sarama.ConsumerGroupSession) error {
	s.tells.set(session.Claims())
	return nil
}

func (s *saramaConsumer) Cleanup(sarama.ConsumerGroupSession) error {
	s.tells.set(nil)
	return nil
}

func (s *saramaConsumer) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case _, open := <-claim.Messages():
			if !open {
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (s *saramaConsumer) subscribe([]string) {}

func (s *saramaConsumer) close() {
	s.stop()
	<-s.done
	_ = s.group.Close()
}
