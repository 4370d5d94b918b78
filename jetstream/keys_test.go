package jetstream

import (
	"fmt"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"
)

// orderedSource is a bound source that keeps order by subject. It counts how often it asks for a key.
func orderedSource(leases int) (s *Source, asked *int) {
	s = NewSource(nil, ConsumerConfig{Stream: "S", Ordered: true, Concurrency: leases}, quiet())
	s.bound = &binding{info: &natsjs.ConsumerInfo{Config: natsjs.ConsumerConfig{AckWait: time.Hour}}}
	s.retries.empty.Store(true)
	s.hearing.last = time.Now()
	asked = new(int)
	s.Tell(func(m *Message) Key { *asked++; return Key{Name: m.Subject} }, func(*Message) *Message { return nil }, func() {})
	return s, asked
}

// arrives leases a message, as one that is delivered.
func (s *Source) arrives(sequence uint64, key string) *Message {
	m := &Message{Sequence: sequence, lease: sequence, Subject: key, Delivered: 1}
	m.touchedAt = time.Now()
	s.order.next = sequence // no gap
	s.admit(&lane{}, m, sequence)
	return s.leases[sequence]
}

// overtakesAny is what overtakes means: it looks at every lease.
func (s *Source) overtakesAny(m *Message) bool {
	for _, other := range s.leases {
		if other.Sequence < m.Sequence && s.orderer.key(other) == s.orderer.key(m) {
			return true
		}
	}
	return false
}

// Whatever is leased and released, in any order, a message waits for just those of its key that are earlier and leased, and who waits is offered
// again when one of those has gone. Nothing is remembered of keys without leases.
func TestWaitsForTheEarlierOnesOfItsKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _ := orderedSource(1000)
		waits := map[*Message]bool{}
		offered := func() {
			for len(s.ready) > 0 {
				delete(waits, <-s.ready)
			}
		}
		pick := func() *Message {
			sequences := make([]uint64, 0, len(s.leases))
			for n := range uint64(41) {
				if s.leases[n] != nil {
					sequences = append(sequences, n)
				}
			}
			if len(sequences) == 0 {
				return nil
			}
			return s.leases[rapid.SampledFrom(sequences).Draw(t, "which")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"lease": func(t *rapid.T) {
				s.arrives(rapid.Uint64Range(1, 40).Draw(t, "sequence"), rapid.StringMatching("[a-d]").Draw(t, "key"))
				offered()
			},
			"release": func(*rapid.T) {
				if m := pick(); m != nil {
					s.release(m)
					offered()
				}
			},
			"another header": func(t *rapid.T) {
				if m := pick(); m != nil {
					m.Subject = rapid.StringMatching("[a-d]").Draw(t, "key")
					s.fill(m, &Message{})
					offered()
				}
			},
			"begin": func(t *rapid.T) {
				m := pick()
				if m == nil {
					return
				}
				must := s.overtakesAny(m)
				if begun := s.beginInOrder(m); begun == must {
					t.Fatalf("%d begun: %v, and an earlier one is leased: %v", m.Sequence, begun, must)
				}
				if must {
					waits[m] = true
				}
			},
			"": func(t *rapid.T) {
				keys := map[string]bool{}
				for _, m := range s.leases {
					keys[m.Subject] = true
					if got, want := s.overtakes(m), s.overtakesAny(m); got != want {
						t.Fatalf("%d of %s waits: %v, and not %v", m.Sequence, m.Subject, got, want)
					}
				}
				if len(s.order.keys) != len(keys) {
					t.Fatalf("%d keys are known, and %d have leases", len(s.order.keys), len(keys))
				}
				for m := range waits {
					if !m.released.Load() && !s.overtakesAny(m) {
						t.Fatalf("%d waits for nothing", m.Sequence)
					}
				}
				for key := range s.order.behind {
					if !keys[key.Name] {
						t.Fatalf("something waits for %s, which has no leases", key.Name)
					}
				}
			},
		})
	})
}

// What a message costs does not grow with the leases: its key is asked for once, and nobody else's.
func TestKeysAreAskedForOnce(t *testing.T) {
	const leases = 2000
	s, asked := orderedSource(leases)
	for n := range uint64(leases) {
		s.arrives(n+1, fmt.Sprint(n%7))
	}
	for n := range uint64(leases) {
		m := s.leases[n+1]
		if !s.beginInOrder(m) {
			t.Fatalf("%d did not begin", m.Sequence)
		}
		s.release(m)
	}
	if *asked != leases {
		t.Errorf("a key was asked for %d times", *asked)
	}
}

// The room that one key took is given back: of many keys each may have had all leases once.
func TestKeysGiveTheirRoomBack(t *testing.T) {
	const leases = 10_000
	s, _ := orderedSource(leases)
	for n := range uint64(leases) {
		s.arrives(n+1, "key")
	}
	for n := range uint64(leases - 1) {
		s.release(s.leases[n+1])
	}
	if room := cap(s.leases[leases].keyed.leases); room > 64 {
		t.Errorf("there is room for %d", room)
	}
}

// One message from lease to lease, beside so many others: of one key, and of as many keys.
func BenchmarkBeginInOrder(b *testing.B) {
	for _, leases := range []int{200, 5000, 20_000} {
		for _, keys := range []int{1, leases} {
			b.Run(fmt.Sprintf("leases=%d/keys=%d", leases, keys), func(b *testing.B) {
				s, _ := orderedSource(leases + 1)
				next := uint64(0)
				arrives := func() {
					next++
					s.arrives(next, fmt.Sprint(next%uint64(keys)))
					<-s.ready
				}
				for range leases {
					arrives()
				}
				b.ReportAllocs()
				for b.Loop() {
					arrives()
					m := s.leases[next-uint64(leases)]
					if !s.beginInOrder(m) {
						b.Fatal("it did not begin")
					}
					s.release(m)
				}
			})
		}
	}
}
