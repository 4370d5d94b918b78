package dedupe

import (
	"context"
	"sync"
	"time"
)

const (
	// BucketTimeout bounds one request to a bucket, and so how long a bucket that does not answer holds a message up.
	BucketTimeout = 500 * time.Millisecond
	// bucketPause is how long a bucket that failed is not asked.
	bucketPause = time.Second
	// maxOwed bounds the keys that could not be stored and still shall be, 16 bytes each.
	maxOwed = 10_000
)

// Bucket is a store of keys outside this process, in the form of Key.String. It is safe for concurrent use.
type Bucket interface {
	// Has reports whether one of the keys is stored.
	Has(ctx context.Context, keys ...string) (bool, error)
	// Put returns when the key is stored so that a crash of this process does not lose it.
	Put(ctx context.Context, key string) error
}

// Shared remembers keys in a bucket that many processes share, with the memory of this one in front. It is safe for
// concurrent use.
//
// A key that the memory does not have is always looked up: neither the number of a delivery nor where the last one went
// tells for sure that nobody else answered it. So a message costs one request to the bucket for each of its keys, all at a
// time, before its call, and one after it.
//
// A bucket that fails holds nobody up for long: after a failure it is not asked for a second, and then by one caller at a
// time until it answers. Meanwhile the memory alone decides.
type Shared struct {
	memory *Memory
	bucket Bucket // nil: the memory alone
	failed func()

	reading, writing outage

	mu   sync.Mutex
	owed []Key         // not stored in the bucket, oldest first
	owes chan struct{} // holds one when owed is not empty
}

// NewShared puts the memory in front of a bucket. Without one it is the memory alone. failed is called each time that
// the bucket should be asked and does not answer, also where it is not tried because it failed just before.
func NewShared(memory *Memory, bucket Bucket, failed func()) *Shared {
	return &Shared{memory: memory, bucket: bucket, failed: failed, owes: make(chan struct{}, 1)}
}

// Seen reports whether one of the keys is remembered. It returns after BucketTimeout at the latest. A stop does not cut it
// short: what was answered must not be called because of one.
func (s *Shared) Seen(keys ...Key) bool {
	for _, k := range keys {
		if s.memory.Seen(k) {
			return true
		}
	}
	if s.bucket == nil {
		return false
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.String()
	}
	found := false
	s.ask(&s.reading, func(ctx context.Context) (err error) {
		found, err = s.bucket.Has(ctx, names...)
		return err
	})
	return found
}

// Remember keeps k. It returns when the bucket has it, or after BucketTimeout at the latest; a stop does not cut it short
// either. What could not be stored is stored by Run, when the bucket is back.
func (s *Shared) Remember(k Key) {
	s.memory.Remember(k)
	if s.bucket == nil {
		return
	}
	if !s.ask(&s.writing, func(ctx context.Context) error { return s.bucket.Put(ctx, k.String()) }) {
		s.owe(k)
	}
}

// ask makes one request, unless the bucket is given a rest, and reports whether it succeeded.
func (s *Shared) ask(o *outage, request func(context.Context) error) bool {
	if !o.turn(time.Now()) {
		s.failed()
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), BucketTimeout)
	defer cancel()
	err := request(ctx)
	o.ended(time.Now(), err)
	if err != nil {
		s.failed()
	}
	return err == nil
}

// Run stores what could not be stored at its time, until ctx ends: a sidecar that gets such a message later shall know it.
func (s *Shared) Run(ctx context.Context) {
	pause := time.NewTicker(bucketPause)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.owes:
		}
		for !s.pay(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
		}
	}
}

// pay stores what is owed and reports whether nothing is any more.
func (s *Shared) pay(ctx context.Context) bool {
	for {
		s.mu.Lock()
		if len(s.owed) == 0 {
			s.owed = nil
			s.mu.Unlock()
			return true
		}
		k := s.owed[0]
		s.mu.Unlock()

		try, cancel := context.WithTimeout(ctx, BucketTimeout)
		err := s.bucket.Put(try, k.String())
		cancel()
		if err != nil {
			return false
		}
		s.writing.ended(time.Now(), nil)
		s.mu.Lock()
		if len(s.owed) > 0 && s.owed[0] == k { // else it made room meanwhile
			s.owed = s.owed[1:]
		}
		s.mu.Unlock()
	}
}

// owe keeps k for Run. The oldest makes room.
func (s *Shared) owe(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.owed) >= maxOwed {
		s.owed = s.owed[1:]
	}
	s.owed = append(s.owed, k)
	select {
	case s.owes <- struct{}{}:
	default:
	}
}

// outage keeps callers away from what failed: looking up and storing can fail each for itself, as in a bucket that is full.
type outage struct {
	mu   sync.Mutex
	down bool
	next time.Time // not before then is it tried again
}

// turn reports whether the caller may try; then ended must follow.
func (o *outage) turn(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !o.down:
		return true
	case now.Before(o.next):
		return false
	default:
		o.next = now.Add(BucketTimeout + bucketPause) // this one tries; its result sets it anew
		return true
	}
}

func (o *outage) ended(now time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = err != nil
	o.next = now.Add(bucketPause)
}
