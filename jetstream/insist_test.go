package jetstream

import (
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A question that nobody answered, as while a durable has no leader, is asked again within the time of a request: what waits for the
// answer goes on soon after there is a leader.
func TestQuestionsAreAskedAgain(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{Durable: "d", AckPolicy: natsjs.AckExplicitPolicy}))
	conn, err := Dial(Config{URLs: []string{b.server.ClientURL()}, Name: "test", APIPrefix: "silent"}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	for _, subject := range []string{"CONSUMER.INFO.S.d", "STREAM.INFO.S"} {
		asked := 0 // only by the subscription's own goroutine
		sub, err := b.nc.Subscribe("silent."+subject, func(m *nats.Msg) {
			if asked++; asked < 3 {
				return
			}
			answer, err := b.nc.Request("$JS.API."+subject, nil, apiTimeout)
			if err != nil {
				t.Error(err)
				return
			}
			if err := m.Respond(answer.Data); err != nil {
				t.Error(err)
			}
		})
		b.must(sub, err)
		b.must(nil, b.nc.Flush())
	}
	info, err := conn.consumerInfo(b.ctx, "S", "d")
	if err != nil || info.Name != "d" {
		t.Errorf("the durable is %+v, %v", info, err)
	}
	if info, err := conn.streamInfo(b.ctx, "S"); err != nil || info.Config.Name != "S" {
		t.Errorf("the stream is %+v, %v", info, err)
	}
}
