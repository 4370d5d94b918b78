package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// StateBucket is the key-value bucket of the marks.
	StateBucket = "sidecar-state"
	// marksTTL is how long a mark is kept whose message does not come back.
	marksTTL = 7 * 24 * time.Hour
)

// Marks are the evidence of a crash loop: a message past its limit leaves one when it is tried, and its verdict removes it, so
// that one that stayed tells of a process that died. They are written for such messages only.
type Marks struct {
	conn   *Conn
	cfg    ConsumerConfig
	mu     sync.Mutex
	bucket natsjs.KeyValue // nil until it was needed
	client *client         // that it was looked up with
}

// NewMarks prepares to keep the marks of a consumer's messages. It asks nothing of the server.
func NewMarks(conn *Conn, cfg ConsumerConfig) *Marks { return &Marks{conn: conn, cfg: cfg} }

// Count is the number of marks of a message.
func (k *Marks) Count(ctx context.Context, key string) (int, error) {
	ctx, cancel := k.conn.bounded(ctx, apiTimeout)
	defer cancel()
	kv, err := k.open(ctx)
	if err != nil {
		return 0, err
	}
	entry, err := kv.Get(ctx, key)
	if errors.Is(err, natsjs.ErrKeyNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, k.failed("reading", err)
	}
	n, err := strconv.Atoi(string(entry.Value()))
	if err != nil {
		return 0, fmt.Errorf("reading a mark in bucket %s: %w", StateBucket, err)
	}
	return n, nil
}

// Set leaves n marks. It returns once they are stored.
func (k *Marks) Set(ctx context.Context, key string, n int) error {
	ctx, cancel := k.conn.bounded(ctx, apiTimeout)
	defer cancel()
	kv, err := k.open(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := kv.Put(ctx, key, strconv.AppendInt(nil, int64(n), 10)); err != nil {
		return k.failed("writing", k.explained(err, key, began))
	}
	return nil
}

// Remove takes all marks of a message away. Where there is no bucket there are none.
func (k *Marks) Remove(ctx context.Context, key string) error {
	ctx, cancel := k.conn.bounded(ctx, apiTimeout)
	defer cancel()
	kv, err := k.find(ctx)
	began := time.Now()
	if err == nil {
		err = kv.Purge(ctx, key)
	}
	if errors.Is(err, natsjs.ErrNoStreamResponse) { // a bucket that is gone, or has no leader
		_ = k.failed("removing", err)
		_, err = k.find(ctx)
		if err == nil {
			err = natsjs.ErrNoStreamResponse
		}
	}
	if errors.Is(err, natsjs.ErrBucketNotFound) {
		return nil
	}
	if err != nil {
		return k.failed("removing", k.explained(err, key, began))
	}
	return nil
}

// find is the bucket, which it does not make.
func (k *Marks) find(ctx context.Context) (natsjs.KeyValue, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	client := k.conn.client.Load()
	if k.bucket != nil && k.client == client {
		return k.bucket, nil
	}
	if !k.conn.Connected() {
		return nil, ErrNotConnected
	}
	kv, err := k.conn.findStateBucket(ctx)
	if err == nil {
		k.bucket, k.client = kv, client
	}
	return kv, err
}

// explained is ErrDenied if the server refused the write that began then: it is not answered.
func (k *Marks) explained(err error, key string, began time.Time) error {
	subject := "$KV." + StateBucket + "." + key
	if k.conn.deniedSince(subject, began) || k.conn.deniedSince(k.conn.prefix+subject, began) {
		return ErrDenied
	}
	return err
}

// failed forgets the bucket, which may be gone: it is looked up again.
func (k *Marks) failed(doing string, err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bucket = nil
	return fmt.Errorf("%s a mark in bucket %s: %w", doing, StateBucket, err)
}

func (k *Marks) open(ctx context.Context) (natsjs.KeyValue, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	client := k.conn.client.Load()
	if k.bucket != nil && k.client == client {
		return k.bucket, nil
	}
	kv, err := k.conn.stateBucket(ctx, k.cfg.Stream, k.cfg.Manage)
	if err != nil {
		return nil, err
	}
	k.bucket, k.client = kv, client
	return kv, nil
}

// stateBucket opens the bucket. If it is missing, and may be made, it is made with as many replicas as the source stream has.
func (c *Conn) stateBucket(ctx context.Context, source string, manage Manage) (natsjs.KeyValue, error) {
	if !c.Connected() {
		return nil, ErrNotConnected
	}
	kv, err := c.findStateBucket(ctx)
	if errors.Is(err, natsjs.ErrBucketNotFound) && manage != ManageNone {
		kv, err = c.makeStateBucket(ctx, source)
	}
	if err != nil {
		return nil, fmt.Errorf("opening bucket %s: %w", StateBucket, err)
	}
	return kv, nil
}

// findStateBucket looks the bucket up. In a cluster a bucket that was just made has no leader for a moment, and nobody answers.
// It is ErrDenied if the user may not ask.
func (c *Conn) findStateBucket(ctx context.Context) (natsjs.KeyValue, error) {
	began := time.Now()
	for {
		within, cancel := context.WithTimeout(ctx, time.Second)
		kv, err := c.js().KeyValue(within, StateBucket)
		cancel()
		if err != nil && c.deniedSince(c.prefix+"STREAM.INFO.KV_"+StateBucket, began) {
			return nil, ErrDenied
		}
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return kv, err
		}
	}
}

func (c *Conn) makeStateBucket(ctx context.Context, source string) (natsjs.KeyValue, error) {
	info, err := c.streamInfo(ctx, source)
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	_, err = c.createStream(within, natsjs.StreamConfig{
		Name: "KV_" + StateBucket, Description: "marks of messages that sidecars try past their limit, and of dead letters in replay",
		Subjects: []string{"$KV." + StateBucket + ".>"}, Storage: natsjs.FileStorage, Discard: natsjs.DiscardNew, MaxMsgsPerSubject: 1,
		MaxAge: marksTTL, Duplicates: 2 * time.Minute, Replicas: max(info.Config.Replicas, 1), AllowRollup: true, DenyDelete: true, AllowDirect: true,
	})
	if err != nil && !errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) && (!errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil) {
		return nil, err
	}
	soon, done := c.bounded(ctx, apiTimeout)
	defer done()
	for { // also if another sidecar made it just now: a cluster may tell only one of two, and both before all of its servers know of it
		kv, err := c.findStateBucket(soon)
		if !errors.Is(err, natsjs.ErrBucketNotFound) || pause(soon, bucketRetry) != nil {
			return kv, err
		}
	}
}
