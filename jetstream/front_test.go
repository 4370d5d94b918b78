package jetstream

import (
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// front stands before the server's API and passes on what the source under test asks, but for what change answers. It is called for one request
// after the other, with the part of the subject behind the prefix.
func (b *bench) front(change func(api string, m *nats.Msg) (answered bool)) {
	b.t.Helper()
	conn, err := Dial(Config{URLs: []string{b.server.ClientURL()}, Name: "test", APIPrefix: "front"}, quiet())
	b.must(nil, err)
	b.t.Cleanup(conn.Close)
	b.conn = conn
	var passing sync.Mutex // held while a request is passed on
	over := false
	_, err = b.nc.Subscribe("front.>", func(m *nats.Msg) {
		passing.Lock()
		defer passing.Unlock()
		if over {
			return
		}
		api := strings.TrimPrefix(m.Subject, "front.")
		if change(api, m) {
			return
		}
		if err := b.nc.PublishMsg(&nats.Msg{Subject: "$JS.API." + api, Reply: m.Reply, Header: m.Header, Data: m.Data}); err != nil {
			b.t.Error(err)
		}
	})
	b.must(nil, err)
	b.t.Cleanup(func() { // before the connection closes
		passing.Lock()
		defer passing.Unlock()
		over = true
	})
	b.must(nil, b.nc.Flush())
}

// answer is the server's to what the source asked; nil where there is none: what asked asks again.
func (b *bench) answer(api string, m *nats.Msg) []byte {
	answer, err := b.nc.Request("$JS.API."+api, m.Data, apiTimeout)
	if err != nil {
		return nil
	}
	return answer.Data
}

// respond answers what the source asked, unless there was an error.
func (b *bench) respond(m *nats.Msg, data []byte, err error) {
	if err == nil {
		err = m.Respond(data)
	}
	if err != nil {
		b.t.Error(err)
	}
}
