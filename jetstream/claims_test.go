package jetstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func (b *bench) claims(id string) (*Claims, [][]uint64) {
	b.t.Helper()
	k, dead, err := b.conn.OpenClaims(b.ctx, "S", "S", ManageCreate, id, "owner of "+id)
	b.must(k, err)
	return k, dead
}

// table is what the bucket says of the claims on stream S.
func (b *bench) table() (t claimTable) {
	b.t.Helper()
	kv, err := b.js.KeyValue(b.ctx, StateBucket)
	b.must(kv, err)
	entry, err := kv.Get(b.ctx, claimsKey("S"))
	b.must(entry, err)
	b.must(nil, json.Unmarshal(entry.Value(), &t))
	return t
}

func (b *bench) setTable(t claimTable) {
	b.t.Helper()
	kv, err := b.js.KeyValue(b.ctx, StateBucket)
	b.must(kv, err)
	value, err := json.Marshal(t)
	b.must(value, err)
	_, err = kv.Put(b.ctx, claimsKey("S"), value)
	b.must(nil, err)
}

func (b *bench) take(k *Claims, entries ...uint64) ([]uint64, string) {
	b.t.Helper()
	got, owner, err := k.Take(b.ctx, entries...)
	b.must(nil, err)
	return got, owner
}

func TestClaims(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	one, dead := b.claims("one")
	two, _ := b.claims("two")
	if len(dead) != 0 {
		t.Errorf("%v of the dead", dead)
	}
	if got, _ := b.take(one, 1, 2); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("%v", got)
	}
	if got, owner := b.take(two, 2, 3); !slices.Equal(got, []uint64{3}) || owner != "owner of one" {
		t.Errorf("%v, the others are claimed by %q", got, owner)
	}
	b.must(nil, one.Done(b.ctx, []uint64{1, 7}))
	if got, owner := b.take(two, 1); len(got) != 0 || owner != "owner of one" {
		t.Errorf("%v, %q", got, owner)
	}
	b.must(nil, one.Release(b.ctx, 1, 2))
	if got, _ := b.take(two, 1, 2); len(got) != 2 {
		t.Errorf("%v", got)
	}
	b.must(nil, one.Close(b.ctx))
	b.must(nil, two.Close(b.ctx))
	if left := b.table(); len(left.Runs) != 0 {
		t.Errorf("%+v is left", left)
	}
}

// A run that loses an entry to another at the last moment does not claim it, not even later.
func TestClaimsLost(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	one, _ := b.claims("one")
	two, _ := b.claims("two")
	b.take(one, 1)
	if got, _ := b.take(two, 1, 2); !slices.Equal(got, []uint64{2}) {
		t.Errorf("%v", got)
	}
	b.take(one, 3)
	if got, _ := b.take(two, 3); len(got) != 0 {
		t.Errorf("%v", got)
	}
	b.must(nil, two.Renew(b.ctx))
	for _, r := range b.table().Runs {
		if want := map[string][]uint64{"one": {1, 3}, "two": {2}}[r.ID]; !slices.Equal(r.Work, want) {
			t.Errorf("%s has %v, want %v", r.ID, r.Work, want)
		}
	}
}

// What a run that died worked on is free; what it was done with stays claimed until somebody has removed it.
func TestClaimsOfTheDead(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	k, _ := b.claims("first")
	b.must(nil, k.Close(b.ctx))
	mine := b.table()
	mine.Runs = []claimRun{
		{ID: "dead", Owner: "the dead", Until: time.Now().Add(-time.Second), Work: []uint64{1}, Done: [][]uint64{{2, 9}}},
		{ID: "alive", Owner: "the living", Until: time.Now().Add(time.Minute), Work: []uint64{3}, Done: [][]uint64{{4}}},
	}
	b.setTable(mine)
	k, dead := b.claims("next")
	if len(dead) != 1 || !slices.Equal(dead[0], []uint64{2, 9}) {
		t.Errorf("%v of the dead", dead)
	}
	if got, owner := b.take(k, 1, 2, 3, 4); !slices.Equal(got, []uint64{1}) || owner != "the living" {
		t.Errorf("%v, %q", got, owner)
	}
	b.must(nil, k.Adopted(b.ctx))
	if got, _ := b.take(k, 2, 3, 4); !slices.Equal(got, []uint64{2}) {
		t.Errorf("%v", got)
	}
}

// What a run that ends was done with and could not remove is not forgotten with it.
func TestClaimsOfOneThatCouldNotRemove(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	k, _ := b.claims("first")
	b.take(k, 1, 2, 3)
	b.must(nil, k.Done(b.ctx, []uint64{2, 9}))
	b.must(nil, k.Done(b.ctx, []uint64{3}))
	b.must(nil, k.Release(b.ctx, 3))
	b.must(nil, k.Close(b.ctx))
	k, dead := b.claims("next")
	if len(dead) != 1 || !slices.Equal(dead[0], []uint64{2, 9}) {
		t.Errorf("%v of the one before", dead)
	}
	if got, owner := b.take(k, 1, 2, 3); !slices.Equal(got, []uint64{1, 3}) || owner != "owner of first" {
		t.Errorf("%v, %q", got, owner)
	}
	another, _ := b.claims("another") // it ends after that, and before what the first was done with is removed
	b.take(another, 4)
	b.must(nil, another.Done(b.ctx, []uint64{4}))
	b.must(nil, another.Close(b.ctx))
	b.must(nil, k.Adopted(b.ctx))
	if got, owner := b.take(k, 2, 4); !slices.Equal(got, []uint64{2}) || owner != "owner of another" {
		t.Errorf("%v, %q", got, owner)
	}
}

// Claims on a stream that is gone, and what cannot be read, are none.
func TestClaimsThatDoNotCount(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	k, _ := b.claims("first")
	b.must(nil, k.Close(b.ctx))
	old := b.table()
	old.Created = old.Created.Add(-time.Hour)
	old.Runs = []claimRun{{ID: "x", Owner: "x", Until: time.Now().Add(time.Hour), Work: []uint64{1}}}
	b.setTable(old)
	if got, owner := b.take(k, 1); len(got) != 1 {
		t.Errorf("%v, %q", got, owner)
	}
	kv, err := b.js.KeyValue(b.ctx, StateBucket)
	b.must(kv, err)
	_, err = kv.PutString(b.ctx, claimsKey("S"), "nonsense")
	b.must(nil, err)
	if got, _ := b.take(k, 2); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestClaimsWithoutABucket(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	if _, _, err := b.conn.OpenClaims(b.ctx, "S", "S", ManageNone, "x", "x"); !IsNoBucket(err) {
		t.Errorf("%v", err)
	}
	if _, _, err := b.conn.OpenClaims(b.ctx, "NONE", "S", ManageCreate, "x", "x"); !errors.Is(err, ErrStreamNotFound) {
		t.Errorf("%v", err)
	}
}

// However many runs want the same entries at once, each is had by one at a time, and none is lost on the way.
func TestClaimsAtOnce(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	const runs, entries = 4, 30
	var mu sync.Mutex
	held, handled := map[uint64]string{}, map[uint64]int{}
	var all sync.WaitGroup
	for i := range runs {
		id := fmt.Sprint("run ", i)
		k, _ := b.claims(id)
		all.Go(func() {
			for n := uint64(1); n <= entries; {
				got, _, err := k.Take(b.ctx, n)
				if err != nil {
					t.Error(err)
					return
				}
				if len(got) == 0 {
					n++ // somebody else has it
					continue
				}
				mu.Lock()
				if other := held[n]; other != "" {
					t.Errorf("%s and %s have %d", other, id, n)
				}
				held[n] = id
				handled[n]++
				mu.Unlock()
				mu.Lock()
				held[n] = ""
				mu.Unlock()
				if err := k.Release(b.ctx, n); err != nil {
					t.Error(err)
				}
				n++
			}
		})
	}
	all.Wait()
	for n := range uint64(entries) {
		if handled[n+1] == 0 {
			t.Errorf("%d was had by nobody", n+1)
		}
	}
	for _, r := range b.table().Runs {
		if len(r.Work) > 0 {
			t.Errorf("%s still has %v", r.Owner, r.Work)
		}
	}
}

// A cluster of which a server just came, or that elects, cannot make the bucket for a moment; what it cannot do at all is said at once.
func TestClaimsInAClusterThatIsUnsettled(t *testing.T) {
	for _, c := range []struct {
		code    int
		text    string
		waited  bool
		refused int // times
	}{
		{10005, "no suitable peers for placement, peer offline", true, 3},
		{10008, "JetStream system temporarily unavailable", true, 3},
		{10005, "no suitable peers for placement, insufficient storage", false, 1},
		{10026, "maximum number of streams reached", false, 1},
	} {
		t.Run(c.text, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			refused := 0
			b.front(func(api string, m *nats.Msg) bool {
				if strings.HasPrefix(api, "$KV.") {
					b.must(nil, b.nc.PublishMsg(&nats.Msg{Subject: api, Reply: m.Reply, Header: m.Header, Data: m.Data}))
					return true
				}
				if api != "STREAM.CREATE.KV_"+StateBucket || refused == c.refused {
					return false
				}
				refused++
				b.respond(m, fmt.Appendf(nil, `{"type":"io.nats.jetstream.api.v1.stream_create_response","error":{"code":400,"err_code":%d,"description":%q}}`,
					c.code, c.text), nil)
				return true
			})
			_, _, err := b.conn.OpenClaims(b.ctx, "S", "S", ManageCreate, "one", "one")
			if refused != c.refused || (err == nil) != c.waited || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("refused %d times, then: %v", refused, err)
			}
		})
	}
}

// A bucket that was just made, by this run or another, may not be known to all servers of a cluster for a moment.
func TestClaimsInABucketThatWasJustMade(t *testing.T) {
	for _, byAnother := range []bool{false, true} {
		t.Run(fmt.Sprintf("by another %v", byAnother), func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			made, unknown := false, 0
			b.front(func(api string, m *nats.Msg) bool {
				switch {
				case strings.HasPrefix(api, "$KV."):
					b.must(nil, b.nc.PublishMsg(&nats.Msg{Subject: api, Reply: m.Reply, Header: m.Header, Data: m.Data}))
					return true
				case api == "STREAM.CREATE.KV_"+StateBucket:
					made = true
					if byAnother {
						b.must(b.js.CreateKeyValue(b.ctx, natsjs.KeyValueConfig{Bucket: StateBucket}))
						b.respond(m, []byte(`{"type":"io.nats.jetstream.api.v1.stream_create_response","error":{"code":400,"err_code":10058,"description":"stream name already in use with a different configuration"}}`), nil)
					}
					return byAnother
				case made && unknown < 3 && api == "STREAM.INFO.KV_"+StateBucket:
					unknown++
					b.respond(m, []byte(`{"type":"io.nats.jetstream.api.v1.stream_info_response","error":{"code":404,"err_code":10059,"description":"stream not found"}}`), nil)
					return true
				}
				return false
			})
			_, _, err := b.conn.OpenClaims(b.ctx, "S", "S", ManageCreate, "one", "one")
			if err != nil || unknown != 3 {
				t.Errorf("asked in vain %d times, then: %v", unknown, err)
			}
		})
	}
}

// Company changes with every change of the claims that another run can have come before, and with no other.
func TestClaimsCompany(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	one, _ := b.claims("one")
	n := uint64(0)
	work := func() {
		n++
		b.take(one, n)
		b.must(nil, one.Done(b.ctx, []uint64{n}))
		b.must(nil, one.Renew(b.ctx))
		b.must(nil, one.Release(b.ctx, n))
	}
	take := func() { n++; b.take(one, n) }
	var two *Claims
	for _, step := range []struct {
		name    string
		do      func()
		changes bool
	}{
		{"alone", work, false},
		{"another one comes", func() { two, _ = b.claims("two"); take() }, true},
		{"it is there", take, true},
		{"it works", func() { b.take(two, 1000); take() }, true},
		{"it is still there", take, true},
		{"it goes", func() { b.must(nil, two.Close(b.ctx)); take() }, true},
		{"alone again", work, false},
		{"one comes and goes", func() {
			two, _ = b.claims("two")
			b.must(nil, two.Close(b.ctx))
			take()
		}, true},
		{"alone once more", work, false},
		{"one is killed", func() {
			_, _ = b.claims("two")
			table := b.table()
			for i := range table.Runs {
				if table.Runs[i].ID == "two" {
					table.Runs[i].Until = time.Now().Add(-time.Hour)
				}
			}
			b.setTable(table)
			take()
		}, true},
		{"it is buried", work, false},
	} {
		before := one.Company()
		step.do()
		if after := one.Company(); (after != before) != step.changes || after < before {
			t.Errorf("%s: from %d to %d", step.name, before, after)
		}
	}
}
