package jetstream

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// An account without JetStream is told from one that has it.
func TestCheckJetStream(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	if off, yes := b.conn.CheckJetStream(b.ctx); yes {
		t.Errorf("it is on, and found off: %+v", off)
	}
	opts := *b.opts
	opts.Port, opts.StoreDir = -1, t.TempDir()
	poor := server.NewAccount("POOR")
	opts.Accounts = []*server.Account{poor}
	opts.Users = []*server.User{{Username: "u", Password: "p", Account: poor}}
	s := startServer(t, &opts)
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	conn, err := Dial(Config{URLs: []string{s.ClientURL()}, User: "u", Password: "p"}, quiet())
	b.must(conn, err)
	t.Cleanup(conn.Close)
	b.eventually("a connection", conn.Connected)
	off, yes := conn.CheckJetStream(b.ctx)
	if !yes || off.Level != Failed || !strings.Contains(off.Detail, "not enabled for this account") {
		t.Errorf("it is off, and found: %+v", off)
	}
}
