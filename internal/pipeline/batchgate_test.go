package pipeline

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// answered is what an answer says of a batch, a letter for each message: r to be tried again, l that at its limit, a done, x rejected,
// h handed back, u undeliverable. What it does not name is a dot, and as the answer as a whole means.
func answered(says string, means policy.Verdict) (all, rest []*attempt) {
	decisions := map[rune]policy.Decision{'r': failed, 'l': atEnd, 'a': passed, 'x': {Verdict: policy.DLQ, Reason: policy.ReasonRejected}, 'h': {}, 'u': void, '.': {Verdict: means}}
	for i, c := range says {
		a := &attempt{message: &jetstream.Message{Sequence: uint64(i) + 1}, decision: decisions[c], named: c != '.'}
		all = append(all, a)
		if !a.named {
			rest = append(rest, a)
		}
	}
	return all, rest
}

// One answer is one moment: what it says of its messages counts in their order, and only what is true after the last of them is done.
func TestGateOfABatch(t *testing.T) {
	for name, c := range map[string]struct {
		says  string
		means policy.Verdict
		open  bool
		again []int // the places of those to be tried again in place
	}{
		"some named, the rest done":      {"lllll" + dots(95), policy.Ack, false, nil},
		"the same among them":            {dots(40) + "lllll" + dots(55), policy.Ack, false, nil},
		"one done at the end":            {"lllllla", policy.Retry, false, nil},
		"one rejected at the end":        {"llllllx", policy.Retry, false, nil},
		"all named":                      {"rrlrl", policy.Retry, true, []int{2, 4}},
		"done, then all fail":            {"alrlrll", policy.Ack, true, []int{1, 3, 5, 6}},
		"fail, done, fail":               {"llllalll", policy.Ack, false, nil},
		"the rest is one failure":        {"rrr....", policy.Retry, false, nil},
		"the rest is the last failure":   {"lrrr...", policy.Retry, true, []int{0}},
		"one that is not named":          {"rrrr.", policy.Retry, true, nil},
		"handed back":                    {"rrrrhhhh", policy.Retry, false, nil},
		"undeliverable":                  {"rruru", policy.Retry, false, nil},
		"undeliverable among failures":   {"rururrr", policy.Retry, true, nil},
		"rejected together":              {"rrrr...r", policy.DLQ, true, nil},
		"one rejected, which is a word":  {"rrrr.", policy.DLQ, false, nil},
		"done after a failure of others": {".....a", policy.Retry, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(policy.BreakerConfig{Failures: 5, ProbeInterval: time.Second, ProbeMax: time.Second, Hold: time.Hour}, 4)
			changes, opens := 0, g.opens()
			g.onChange = func(bool, time.Time, string) { changes++ }
			mustEnter(t, g, false)
			all, rest := answered(c.says, c.means)
			g.leaveBatch(all, rest, c.means, "503")
			if g.isOpen() != c.open || isClosed(opens) != c.open || (changes > 0) != c.open {
				t.Errorf("open %v, told of it %v, %d changes", g.isOpen(), isClosed(opens), changes)
			}
			if allowed := g.breaker.Allowed(time.Time{}); !c.open && allowed != 4 {
				t.Errorf("%d requests at a time", allowed)
			}
			var again []int
			for i, a := range all {
				if a.again {
					again = append(again, i)
				}
			}
			if !slices.Equal(again, c.again) {
				t.Errorf("again: %v, want %v", again, c.again)
			}
		})
	}
}

// A batch that was at the app when the breaker opened closes it if a message of it passed; if as many fail after that one, it stays open.
func TestGateOfABatchWhileItIsOpen(t *testing.T) {
	for says, open := range map[string]bool{"rla": false, "larr": true, "rl": true} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(breaker(), 4)
			mustEnter(t, g, false)
			mustEnter(t, g, false)
			mustEnter(t, g, false)
			g.leave(101, failed, "503")
			g.leave(102, failed, "503")
			if !g.isOpen() {
				t.Fatal("it did not open")
			}
			all, rest := answered(says, policy.Ack)
			g.leaveBatch(all, rest, policy.Ack, "503")
			if g.isOpen() != open {
				t.Errorf("%s: open %v", says, g.isOpen())
			}
			for i, a := range all {
				if want := open && limited(a.decision); a.again != want {
					t.Errorf("%s: message %d again %v", says, i, a.again)
				}
			}
		})
	}
}

func dots(n int) string { return string(slices.Repeat([]byte("."), n)) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
