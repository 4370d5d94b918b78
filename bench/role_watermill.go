package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	wmjs "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	"github.com/ThreeDotsLabs/watermill/message"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

var errNotTaken = errors.New("the app did not take it")

// playWatermill is Watermill's router and its JetStream subscriber. A subscription there has one message in work at a time,
// so there are as many as requests in flight, each with a small pull ahead; acks are not confirmed.
func playWatermill(ctx context.Context, r *role) error {
	subscriber, err := wmjs.NewSubscriber(wmjs.SubscriberConfig{
		URL: r.text("nats"), Logger: watermill.NopLogger{}, AckAsync: true, NakDelay: wmjs.NewStaticDelay(retryAfter),
		ResourceInitializer: wmjs.ExistingConsumer(func(string, string) natsjs.ConsumerConfig {
			return natsjs.ConsumerConfig{Name: r.text("durable")}
		}, ""),
		ConsumeOptions: []natsjs.PullConsumeOpt{natsjs.PullMaxMessages(max(2, pullAhead/r.number("concurrency")))},
	})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: stopLimit / 2}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	c := client(r.text("transport"), r.number("concurrency"))
	for i := range r.number("concurrency") {
		router.AddConsumerHandler(fmt.Sprint(i), r.text("stream"), subscriber, func(m *message.Message) error {
			if !post(m.Context(), c, r.text("app"), m.Payload) {
				return errNotTaken
			}
			return nil
		})
	}
	go func() {
		<-router.Running()
		_ = r.ready("")
	}()
	return router.Run(ctx)
}
