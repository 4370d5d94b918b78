package pipeline

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// parcel is a message of the model.
type parcel struct {
	key, sequence int
}

// TestTurns holds, over random comings and goings, that of each key one message at a time has its turn, the lowest of those
// that are there when it begins, and that nothing is known of keys without messages.
func TestTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns := newTurns[int](func(p *parcel) uint64 { return uint64(p.sequence) })
		there := map[int][]*parcel{} // by key, in the order of the stream
		turn := map[int]*parcel{}
		next := 0
		begins := func(key int, p *parcel) {
			if turn[key] != nil {
				t.Fatalf("%v begins while %v is in work", p, turn[key])
			}
			if p != there[key][0] {
				t.Fatalf("%v begins before %v", p, there[key][0])
			}
			turn[key] = p
		}
		goes := func(p *parcel) {
			there[p.key] = slices.DeleteFunc(there[p.key], func(o *parcel) bool { return o == p })
			had := turn[p.key] == p
			if had {
				delete(turn, p.key)
			}
			switch after, ok := turns.leave(p.key, p); {
			case ok:
				begins(p.key, after)
			case had && len(there[p.key]) > 0:
				t.Fatalf("nobody follows %v", p)
			}
		}
		pick := func() *parcel {
			var all []*parcel
			for key := range 3 {
				all = append(all, there[key]...)
			}
			if len(all) == 0 {
				return nil
			}
			return rapid.SampledFrom(all).Draw(t, "message")
		}
		t.Repeat(map[string]func(*rapid.T){
			"comes": func(t *rapid.T) {
				next++
				p := &parcel{rapid.IntRange(0, 2).Draw(t, "key"), 1000 * next}
				there[p.key] = append(there[p.key], p)
				if turns.join(p.key, p) {
					begins(p.key, p)
				}
			},
			"comes late": func(t *rapid.T) {
				p := pick()
				if p == nil || turn[p.key] == nil || p == turn[p.key] {
					return
				}
				next++
				early := &parcel{p.key, p.sequence - 1000 + next%1000}
				if early.sequence < 0 || slices.ContainsFunc(there[p.key], func(o *parcel) bool { return o.sequence == early.sequence }) {
					return
				}
				there[p.key] = append(there[p.key], early)
				slices.SortFunc(there[p.key], func(a, b *parcel) int { return a.sequence - b.sequence })
				if turns.join(p.key, early) {
					t.Fatalf("%v has its turn, and %v is in work", early, turn[p.key])
				}
			},
			"comes again": func(t *rapid.T) {
				p := pick()
				if p == nil {
					return
				}
				if got, want := turns.join(p.key, p), p == turn[p.key]; got != want {
					t.Fatalf("%v has its turn: %v, want %v", p, got, want)
				}
			},
			"goes": func(*rapid.T) {
				if p := pick(); p != nil {
					goes(p)
				}
			},
			"all waiting go": func(*rapid.T) {
				drained := turns.drain()
				for _, p := range drained {
					if p == turn[p.key] {
						t.Fatalf("%v was drained, and is in work", p)
					}
					there[p.key] = slices.DeleteFunc(there[p.key], func(o *parcel) bool { return o == p })
				}
			},
			"": func(*rapid.T) {
				keys := 0
				for key := range 3 {
					if len(there[key]) > 0 {
						keys++
					}
				}
				if len(turns.lines) != keys {
					t.Fatalf("%d keys are known, %d have messages", len(turns.lines), keys)
				}
			},
		})
	})
}
