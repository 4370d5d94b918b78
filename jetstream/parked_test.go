package jetstream

import (
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A warning comes once messages that are not leased here hold most of max_ack_pending for a while, and advises the retry stream where it is off.
func TestParkedWarning(t *testing.T) {
	const said, advice = "most of max_ack_pending", "let retries wait in the retry stream"
	for name, c := range map[string]struct {
		most, pending, leased int
		arrived               uint64 // since it was asked
		enabled, ordered      bool
		warns, advises        bool
	}{
		"all in work":                {most: 100, pending: 100, leased: 100},
		"some came since":            {most: 100, pending: 100, leased: 30, arrived: 50},
		"one, in work":               {most: 1, pending: 1, leased: 1},
		"one, waiting":               {most: 1, pending: 1, warns: true},
		"no limit":                   {pending: 1000},
		"many wait":                  {most: 100, pending: 90, leased: 10, warns: true, advises: true},
		"not that many":              {most: 100, pending: 90, leased: 11},
		"with a retry stream in use": {most: 100, pending: 90, leased: 10, enabled: true, warns: true},
		"with an order":              {most: 100, pending: 90, leased: 10, ordered: true, warns: true},
	} {
		t.Run(name, func(t *testing.T) {
			onWire(t, func(conn *Conn, _ *fakeWire, log *lockedText) {
				s := NewSource(conn, ConsumerConfig{Stream: "S", Durable: "d", Concurrency: 16, Ordered: c.ordered, RetryStream: RetryStreamConfig{Enabled: c.enabled}}, quiet())
				s.arrived = c.arrived
				info := &natsjs.ConsumerInfo{Config: natsjs.ConsumerConfig{MaxAckPending: c.most}, NumAckPending: c.pending}
				idle := &natsjs.ConsumerInfo{Config: info.Config}
				begun := time.Now()
				look := func(info *natsjs.ConsumerInfo, at time.Duration) string {
					s.warnParked(&look{leased: c.leased}, info, begun.Add(at))
					return log.String()
				}
				for _, was := range []string{look(info, 0), look(info, parkedFor-1), look(idle, parkedFor-1), look(info, parkedFor)} { // they end, and begin anew
					if strings.Contains(was, said) {
						t.Fatalf("a warning too early: %s", was)
					}
				}
				text := look(info, 2*parkedFor)
				if got := strings.Contains(text, said); got != c.warns {
					t.Errorf("it warns: %v, want %v", got, c.warns)
				}
				if got := strings.Contains(text, advice); got != c.advises {
					t.Errorf("it advises the retry stream: %v, want %v", got, c.advises)
				}
			})
		})
	}
}
