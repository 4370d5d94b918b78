package jetstream

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func bucketConfig() BucketConfig {
	return BucketConfig{Name: "answered", TTL: time.Hour, Source: "S", Manage: ManageCreate}
}

// has asks a bucket.
func (b *bench) has(k *Bucket, keys ...string) bool {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	found, err := k.Has(ctx, keys...)
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

func (b *bench) store(k *Bucket, key string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	b.must(nil, k.Put(ctx, key))
}

func TestBucket(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	one, two := NewBucket(b.conn, bucketConfig(), quiet()), NewBucket(b.conn, bucketConfig(), quiet())
	if b.has(one, "A") {
		t.Error("a new bucket has a key")
	}
	b.store(one, "A")
	b.store(one, "A")
	for _, keys := range [][]string{{"A"}, {"B", "A"}, {"A", "B"}} {
		if !b.has(two, keys...) {
			t.Errorf("%v is not found", keys)
		}
	}
	if b.has(two, "B") || b.has(two, "B", "C") {
		t.Error("found what was not stored")
	}

	// It is a key-value bucket like any other.
	kv, err := b.js.KeyValue(b.ctx, "answered")
	b.must(kv, err)
	status, err := kv.Status(b.ctx)
	b.must(status, err)
	if status.TTL() != time.Hour || status.History() != 1 || status.Values() != 1 || status.BackingStore() != "JetStream" {
		t.Errorf("%+v", status)
	}
	info := b.streamConfig("KV_answered")
	if info.Storage != natsjs.FileStorage || info.Replicas != 1 || !info.AllowDirect {
		t.Errorf("%+v", info)
	}
	b.must(kv.Put(b.ctx, "C", []byte("by hand")))
	if !b.has(one, "C") {
		t.Error("a key stored by hand is not found")
	}
	b.must(nil, kv.Delete(b.ctx, "A"))
	b.must(nil, kv.Purge(b.ctx, "C"))
	if b.has(one, "A", "C") {
		t.Error("a key deleted by hand is found")
	}
}

func (b *bench) streamConfig(name string) natsjs.StreamConfig {
	b.t.Helper()
	s, err := b.js.Stream(b.ctx, name)
	b.must(s, err)
	return s.CachedInfo().Config
}

func TestBucketForgets(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := bucketConfig()
	cfg.TTL = shortAckWait
	k := NewBucket(b.conn, cfg, quiet())
	b.store(k, "A")
	if !b.has(k, "A") {
		t.Fatal("not stored")
	}
	b.eventually("the key is forgotten", func() bool { return !b.has(k, "A") })
}

// Many that need the bucket look it up once, and make one.
func TestBucketIsMadeOnce(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	made, looked := b.countCalls("$JS.API.STREAM.CREATE.KV_answered"), b.countCalls("$JS.API.STREAM.INFO.KV_answered")
	k := NewBucket(b.conn, bucketConfig(), quiet())
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { b.has(k, "A", "B") })
	}
	all.Wait()
	if n, m := made(), looked(); n != 1 || m < 1 || m > 4 { // one that is not answered soon is asked again, at 0.3, 0.9 and 2.1 s
		t.Errorf("made %d times, looked up %d times", n, m)
	}
}

// countCalls counts messages on a subject from now on.
func (b *bench) countCalls(subject string) func() int {
	b.t.Helper()
	sub, err := b.nc.SubscribeSync(subject)
	b.must(sub, err)
	b.must(nil, b.nc.Flush())
	return func() int { _ = b.nc.Flush(); n, _, _ := sub.Pending(); return n }
}

// A bucket that is there is used as it is.
func TestBucketWithAnotherTTL(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.must(b.js.CreateKeyValue(b.ctx, natsjs.KeyValueConfig{Bucket: "answered", TTL: time.Minute, Storage: natsjs.MemoryStorage}))
	var log bytes.Buffer
	conn, err := Dial(Config{URLs: []string{b.server.ClientURL()}}, slog.New(slog.NewTextHandler(&log, nil)))
	b.must(conn, err)
	k := NewBucket(conn, bucketConfig(), quiet())
	b.store(k, "A")
	if !b.has(k, "A") {
		t.Error("not stored")
	}
	if c := b.streamConfig("KV_answered"); c.MaxAge != time.Minute || c.Storage != natsjs.MemoryStorage {
		t.Errorf("it was changed: %+v", c)
	}
	conn.Close()
	if text := log.String(); strings.Count(text, "another ttl") != 1 || !strings.Contains(text, "ttl=1m0s configured=1h0m0s") {
		t.Errorf("log: %s", text)
	}
}

func TestBucketIsNotMade(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	cfg := bucketConfig()
	cfg.Manage = ManageNone
	made := b.countCalls("$JS.API.STREAM.CREATE.>")
	k := NewBucket(b.conn, cfg, quiet())
	for range 3 {
		if _, err := k.Has(b.ctx, "A"); !errors.Is(err, ErrStreamNotFound) {
			t.Errorf("looking up: %v", err)
		}
		if err := k.Put(b.ctx, "A"); !errors.Is(err, ErrStreamNotFound) || !strings.Contains(err.Error(), "bucket answered") {
			t.Errorf("storing: %v", err)
		}
	}
	if n := made(); n != 0 {
		t.Errorf("made %d times", n)
	}
	b.must(b.js.CreateKeyValue(b.ctx, natsjs.KeyValueConfig{Bucket: "answered", TTL: time.Hour}))
	b.store(k, "A")
	if !b.has(k, "A") {
		t.Error("it is there and not used")
	}
}

// A bucket that is deleted under way is made anew, empty, and no request fails for it.
func TestBucketDeleted(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	k := NewBucket(b.conn, bucketConfig(), quiet())
	b.store(k, "A")
	b.must(nil, b.js.DeleteKeyValue(b.ctx, "answered"))
	if b.has(k, "A") {
		t.Error("found in a bucket that was deleted")
	}
	b.must(nil, b.js.DeleteKeyValue(b.ctx, "answered"))
	b.store(k, "B")
	if !b.has(k, "B") {
		t.Error("not stored")
	}
}

// Nobody waits longer than its context for a bucket that cannot be reached, and the error says why.
func TestBucketOutOfReach(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	k := NewBucket(b.conn, bucketConfig(), quiet())
	b.store(k, "A")
	ask := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(b.ctx, within)
		defer cancel()
		_, err := k.Has(ctx, "A", "B")
		return err
	}
	b.must(nil, b.server.DisableJetStream())
	if err := ask(200 * time.Millisecond); err == nil {
		t.Error("without JetStream there is an answer")
	}
	b.server.Shutdown()
	b.eventually("the connection is lost", func() bool { return !b.conn.Connected() })
	if err := ask(time.Hour); !errors.Is(err, ErrNotConnected) { // which is known at once
		t.Errorf("without a server: %v", err)
	}
}

func TestBucketThatIsFull(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.must(b.js.CreateKeyValue(b.ctx, natsjs.KeyValueConfig{Bucket: "answered", TTL: time.Hour, MaxBytes: 200}))
	k := NewBucket(b.conn, bucketConfig(), quiet())
	var err error
	for i := 0; i < 20 && err == nil; i++ {
		err = k.Put(b.ctx, strings.Repeat("A", i+1))
	}
	var refused *natsjs.APIError
	if !errors.As(err, &refused) {
		t.Errorf("got %v", err)
	}
	if !b.has(k, "A") {
		t.Error("what it has is not found")
	}
}

// With a domain the keys go where nats.go's key-value stores have them.
func TestBucketSubjects(t *testing.T) {
	for _, c := range []struct {
		cfg      Config
		get, put string
	}{
		{Config{}, "$JS.API.DIRECT.GET.KV_answered.$KV.answered.", "$KV.answered."},
		{Config{Domain: "hub"}, "$JS.hub.API.DIRECT.GET.KV_answered.$KV.answered.", "$JS.hub.API.$KV.answered."},
		{Config{APIPrefix: "from.hub"}, "from.hub.DIRECT.GET.KV_answered.$KV.answered.", "from.hub.$KV.answered."},
	} {
		k := NewBucket(&Conn{prefix: apiPrefix(c.cfg)}, bucketConfig(), quiet())
		if k.get != c.get || k.put != c.put {
			t.Errorf("%+v: %s and %s", c.cfg, k.get, k.put)
		}
	}
}

func TestCheckBucket(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	none := bucketConfig()
	none.Manage = ManageNone
	expect := func(cfg BucketConfig, want Level, word string) {
		t.Helper()
		fs := b.conn.CheckBucket(b.ctx, cfg)
		if len(fs) != 1 || fs[0].Level != want || !strings.Contains(fs[0].Detail, word) {
			t.Errorf("%+v, want %s %q", fs, want, word)
		}
	}
	expect(bucketConfig(), OK, "will create it")
	expect(none, Failed, "does not exist")
	b.store(NewBucket(b.conn, bucketConfig(), quiet()), "A")
	expect(none, OK, "1 keys")
	other := bucketConfig()
	other.TTL = time.Minute
	expect(other, Warning, "its ttl is 1h0m0s, configured 1m0s")
	if c := b.streamConfig("KV_answered"); c.MaxAge != time.Hour {
		t.Error("it was changed")
	}
	c := b.streamConfig("KV_answered")
	c.AllowDirect = false
	b.must(b.js.UpdateStream(b.ctx, c))
	expect(bucketConfig(), Failed, "direct gets")
}

func TestCheckBucketPermissions(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	opts := *b.opts
	opts.Port, opts.StoreDir = -1, t.TempDir()
	opts.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Deny: []string{"$KV.>", "$JS.API.DIRECT.>", "$JS.API.STREAM.CREATE.>"}},
	}}}
	s := startServer(t, &opts)
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	conn, err := Dial(Config{URLs: []string{s.ClientURL()}, User: "u", Password: "p"}, quiet())
	b.must(conn, err)
	t.Cleanup(conn.Close)
	fs := conn.CheckBucket(b.ctx, bucketConfig())
	if len(fs) != 2 || fs[1].Level != Failed {
		t.Fatalf("%+v", fs)
	}
	for _, subject := range []string{"$KV.answered.check", "$JS.API.DIRECT.GET.KV_answered.$KV.answered.check", "$JS.API.STREAM.CREATE.KV_answered"} {
		if !strings.Contains(fs[1].Detail, "publish to "+subject) {
			t.Errorf("%s is not in %s", subject, fs[1].Detail)
		}
	}
}

// A key that another stream took is not stored.
func TestBucketThatIsAnotherStream(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	k := NewBucket(b.conn, bucketConfig(), quiet())
	b.store(k, "A")
	b.must(nil, b.js.DeleteKeyValue(b.ctx, "answered"))
	b.must(b.js.CreateStream(b.ctx, natsjs.StreamConfig{Name: "OTHER", Subjects: []string{"$KV.answered.>"}}))
	if err := k.Put(b.ctx, "B"); err == nil || !strings.Contains(err.Error(), `"OTHER" took it`) {
		t.Errorf("got %v", err)
	}
}
