package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franzMember struct{ client *kgo.Client }

func franz(told job) member {
	tells := &teller{}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(told.Address, ",")...),
		kgo.ClientID(told.Name),
		kgo.ConsumerGroup(told.Group),
		kgo.DisableAutoCommit(), // a commit of a deleted topic's partition would hold up its next join
		kgo.MetadataMaxAge(time.Duration(told.MetadataMs) * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) { tells.gain(given) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) { tells.lose(taken) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) { tells.lose(taken) }),
	}
	if told.Pattern != "" {
		options = append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics(told.Pattern))
	} else {
		options = append(options, kgo.ConsumeTopics(told.Topics...))
	}
	if told.Instance != "" {
		options = append(options, kgo.InstanceID(told.Instance))
	}
	balancers := []kgo.GroupBalancer{}
	for _, name := range told.Assignors {
		balancers = append(balancers, map[string]kgo.GroupBalancer{
			"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(),
			"cooperative-sticky": kgo.CooperativeStickyBalancer(),
		}[name])
	}
	options = append(options,
		kgo.Balancers(balancers...),
		kgo.SessionTimeout(time.Duration(told.SessionMs)*time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(told.HeartbeatMs)*time.Millisecond),
		kgo.RebalanceTimeout(time.Duration(told.PollMs)*time.Millisecond),
	)
	ctx := context.Background()
	if told.Protocol == "consumer" {
		ctx = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)
	}
	options = append(options, kgo.WithContext(ctx))
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			fetches.EachError(func(_ string, _ int32, err error) {
				if strings.Contains(err.Error(), "FENCED_INSTANCE_ID") {
					say(map[string]any{"fatal": "FENCED_INSTANCE_ID"})
				}
			})
		}
	}()
	return franzMember{client}
}

func (f franzMember) subscribe(topics []string) {
	for _, old := range f.client.GetConsumeTopics() {
		f.client.PurgeTopicsFromConsuming(old)
	}
	f.client.AddConsumeTopics(topics...)
}

func (f franzMember) close() { f.client.Close() }
