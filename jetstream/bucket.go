package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// bucketRetry is the pause before a request is sent again that nobody was there to hear: a bucket without a leader for a
// moment, or one that was deleted.
const bucketRetry = 50 * time.Millisecond

var errNoDirect = errors.New("it does not allow direct gets")

// BucketConfig is a key-value bucket of short keys that say by being there what they mean.
type BucketConfig struct {
	Name   string
	TTL    time.Duration // of each key, in a bucket made here
	Source string        // the stream that a bucket made here has as many replicas as
	Manage Manage        // with ManageNone a bucket is not made
}

// Bucket is a set of keys in a JetStream key-value bucket. It is looked up, and made if it is missing, at the first use and
// whenever nobody answers. It is safe for concurrent use.
//
// A look-up is one direct get for each key, all at a time; storing a key is one publish. An answer of a bucket with
// replicas may come from one that has not heard yet of a key that the others confirmed.
type Bucket struct {
	conn   *Conn
	cfg    BucketConfig
	log    *slog.Logger
	stream string // that the bucket is
	get    string // subject of a look-up, up to the key
	put    string // subject of a key's storing, up to the key

	opening chan struct{} // holds one while somebody looks the bucket up
	there   atomic.Bool   // it was looked up
}

// NewBucket prepares to use a bucket. It starts nothing and asks for nothing.
func NewBucket(conn *Conn, cfg BucketConfig, log *slog.Logger) *Bucket {
	b := &Bucket{conn: conn, cfg: cfg, log: log, opening: make(chan struct{}, 1), stream: "KV_" + cfg.Name}
	keys := "$KV." + cfg.Name + "."
	b.get = conn.prefix + "DIRECT.GET." + b.stream + "." + keys
	b.put = keys
	if conn.prefix != natsjs.DefaultAPIPrefix {
		b.put = conn.prefix + keys // as key-value stores are mapped between domains and accounts
	}
	return b
}

// Has reports whether one of the keys is stored.
func (b *Bucket) Has(ctx context.Context, keys ...string) (bool, error) {
	type answer struct {
		found bool
		err   error
	}
	answers := make(chan answer, len(keys))
	for _, key := range keys[1:] {
		go func() {
			found, err := b.has(ctx, key)
			answers <- answer{found, err}
		}()
	}
	found, err := b.has(ctx, keys[0])
	for range keys[1:] {
		a := <-answers
		found, err = found || a.found, errors.Join(err, a.err)
	}
	if found {
		return true, nil
	}
	return false, err
}

func (b *Bucket) has(ctx context.Context, key string) (bool, error) {
	msg, err := b.request(ctx, b.get+key)
	if err != nil {
		return false, b.trouble("looking up a key", err)
	}
	switch status := msg.Header.Get("Status"); {
	case status == "404":
		return false, nil
	case status != "":
		return false, b.trouble("looking up a key", fmt.Errorf("status %s %s", status, oneLine(msg.Header.Get("Description"), 200)))
	}
	return msg.Header.Get("KV-Operation") == "" && msg.Header.Get("Nats-Marker-Reason") == "", nil // else it was deleted by hand
}

// Put stores a key. It returns when the bucket confirmed it.
func (b *Bucket) Put(ctx context.Context, key string) error {
	msg, err := b.request(ctx, b.put+key)
	if err != nil {
		return b.trouble("storing a key", err)
	}
	var ack struct {
		Stream string           `json:"stream"`
		Error  *natsjs.APIError `json:"error"`
	}
	switch err := json.Unmarshal(msg.Data, &ack); {
	case err != nil:
		return b.trouble("storing a key", fmt.Errorf("decoding the confirmation: %w", err))
	case ack.Error != nil:
		return b.trouble("storing a key", ack.Error)
	case ack.Stream != b.stream:
		return b.trouble("storing a key", fmt.Errorf("stream %q took it", oneLine(ack.Stream, 100)))
	}
	return nil
}

// request asks the bucket. While nobody answers it looks for the bucket, makes it if it may, and asks again, until ctx ends.
func (b *Bucket) request(ctx context.Context, subject string) (*nats.Msg, error) {
	for {
		if !b.conn.Connected() {
			return nil, ErrNotConnected
		}
		if err := b.open(ctx); err != nil {
			return nil, err
		}
		msg, err := b.conn.nc().RequestWithContext(ctx, subject, nil)
		if !errors.Is(err, nats.ErrNoResponders) {
			return msg, err
		}
		b.there.Store(false)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(bucketRetry):
		}
	}
}

// open makes sure that the bucket is there, or was when it was last looked for.
func (b *Bucket) open(ctx context.Context) error {
	if b.there.Load() {
		return nil
	}
	select {
	case b.opening <- struct{}{}:
		defer func() { <-b.opening }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if b.there.Load() {
		return nil
	}
	info, err := b.conn.streamInfo(ctx, b.stream)
	if errors.Is(err, ErrStreamNotFound) && b.cfg.Manage != ManageNone {
		info, err = b.create(ctx)
	}
	if err != nil {
		return err
	}
	if !info.Config.AllowDirect {
		return errNoDirect
	}
	if have := info.Config.MaxAge; have != b.cfg.TTL {
		b.conn.complain("bucket ttl "+b.cfg.Name, "the dedupe bucket has another ttl than configured and is used as it is",
			slog.String("bucket", b.cfg.Name), slog.Duration("ttl", have), slog.Duration("configured", b.cfg.TTL))
	}
	b.there.Store(true)
	return nil
}

// create makes the bucket as nats.go's CreateKeyValue does, which asks for more permissions.
func (b *Bucket) create(ctx context.Context) (*natsjs.StreamInfo, error) {
	source, err := b.conn.streamInfo(ctx, b.cfg.Source)
	if err != nil {
		return nil, err
	}
	stream, err := b.conn.createStream(ctx, natsjs.StreamConfig{
		Name:              b.stream,
		Description:       "messages that were answered, by the sidecars",
		Subjects:          []string{"$KV." + b.cfg.Name + ".>"},
		Storage:           natsjs.FileStorage,
		MaxMsgsPerSubject: 1,
		MaxAge:            b.cfg.TTL,
		Replicas:          max(source.Config.Replicas, 1),
		Discard:           natsjs.DiscardNew,
		Duplicates:        min(b.cfg.TTL, 2*time.Minute),
		AllowRollup:       true,
		DenyDelete:        true,
		AllowDirect:       true,
	})
	if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) {
		return b.conn.streamInfo(ctx, b.stream) // another sidecar made it just now
	}
	if err != nil {
		return nil, fmt.Errorf("creating it: %w", err)
	}
	b.log.Info("created the dedupe bucket", slog.String("bucket", b.cfg.Name), slog.Duration("ttl", b.cfg.TTL))
	return stream.CachedInfo(), nil
}

// trouble wraps an error, and says it in the log, seldom enough. That there is no connection is said elsewhere.
func (b *Bucket) trouble(doing string, err error) error {
	if !errors.Is(err, ErrNotConnected) {
		b.conn.complain("bucket "+b.cfg.Name, "the dedupe bucket cannot be used, messages flow without it",
			slog.String("bucket", b.cfg.Name), slog.String("error", oneLine(doing+": "+err.Error(), 300)))
	}
	return fmt.Errorf("%s in bucket %s: %w", doing, b.cfg.Name, err)
}
