package dedupe

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeBucket is a bucket in memory that can fail or hang.
type fakeBucket struct {
	mu    sync.Mutex
	keys  map[string]bool
	has   error // what looking up returns
	put   error // what storing returns
	hangs bool  // nothing returns until its context ends
	asked int   // look-ups
	puts  []string
}

func newFakeBucket() *fakeBucket { return &fakeBucket{keys: map[string]bool{}} }

func (b *fakeBucket) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func (b *fakeBucket) hang(ctx context.Context) error {
	b.mu.Lock()
	hangs := b.hangs
	b.mu.Unlock()
	if !hangs {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (b *fakeBucket) Has(ctx context.Context, keys ...string) (bool, error) {
	b.set(func() { b.asked++ })
	if err := b.hang(ctx); err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.has == nil && slices.ContainsFunc(keys, func(k string) bool { return b.keys[k] }), b.has
}

func (b *fakeBucket) Put(ctx context.Context, k string) error {
	b.set(func() { b.puts = append(b.puts, k) })
	if err := b.hang(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.put == nil {
		b.keys[k] = true
	}
	return b.put
}

func (b *fakeBucket) counts() (asked, puts int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked, len(b.puts)
}

// sharedWith is a store over a bucket, and the count of its failures.
func sharedWith(b Bucket) (s *Shared, failures func() int) {
	var mu sync.Mutex
	n := 0
	s = NewShared(NewMemory(time.Hour, 100, time.Now), b, func() { mu.Lock(); n++; mu.Unlock() })
	return s, func() int { mu.Lock(); defer mu.Unlock(); return n }
}

var errBucket = errors.New("bucket is broken")

func TestSharedIsShared(t *testing.T) {
	b := newFakeBucket()
	one, _ := sharedWith(b)
	two, failures := sharedWith(b)
	if one.Seen(key(1)) || two.Seen(key(1), key(2)) {
		t.Fatal("seen before it was remembered")
	}
	one.Remember(key(1))
	if !two.Seen(key(1)) || !two.Seen(key(2), key(1)) || !two.Seen(key(1), key(2)) || two.Seen(key(2)) {
		t.Error("what one remembered the other does not know")
	}
	if n := failures(); n != 0 {
		t.Errorf("%d failures", n)
	}
}

// What the memory knows is not looked up.
func TestSharedMemoryIsInFront(t *testing.T) {
	b := newFakeBucket()
	s, _ := sharedWith(b)
	s.Remember(key(1))
	if !s.Seen(key(1)) || !s.Seen(key(2), key(1)) {
		t.Error("forgotten")
	}
	if asked, puts := b.counts(); asked != 0 || puts != 1 {
		t.Errorf("%d look-ups, %d puts", asked, puts)
	}
}

func TestSharedWithoutBucket(t *testing.T) {
	s, failures := sharedWith(nil)
	if s.Seen(key(1)) {
		t.Error("seen before")
	}
	s.Remember(key(1))
	if !s.Seen(key(2), key(1)) || s.Seen(key(2)) || failures() != 0 {
		t.Error("not the memory alone")
	}
}

// A bucket that does not answer costs one time-out a second and caller, not one a message, and each that goes without counts.
func TestSharedBucketHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket()
		b.hangs = true
		s, failures := sharedWith(b)
		start := time.Now()
		took := func() time.Duration { return time.Since(start) }
		for n := range uint64(10) {
			if s.Seen(key(n)) {
				t.Error("seen")
			}
		}
		if took() != BucketTimeout {
			t.Errorf("ten look-ups took %s", took())
		}
		if asked, _ := b.counts(); asked != 1 || failures() != 10 {
			t.Errorf("%d look-ups tried, %d failures counted", asked, failures())
		}

		// After the pause one tries, and the others do not wait for it.
		time.Sleep(bucketPause)
		start = time.Now()
		go s.Seen(key(20))
		synctest.Wait()
		s.Seen(key(21))
		if asked, _ := b.counts(); asked != 2 || took() != 0 {
			t.Errorf("%d look-ups tried, it took %s", asked, took())
		}
		time.Sleep(BucketTimeout)
		synctest.Wait()

		// The first that succeeds ends it.
		b.set(func() { b.hangs = false; b.keys[key(7).String()] = true })
		if s.Seen(key(7)) {
			t.Error("asked within the pause")
		}
		time.Sleep(bucketPause)
		if !s.Seen(key(7)) || s.Seen(key(8)) || s.Seen(key(9)) {
			t.Error("it is back, and does not answer")
		}
		if asked, _ := b.counts(); asked != 5 {
			t.Errorf("%d look-ups", asked)
		}
	})
}

// A bucket that takes nothing more is still asked.
func TestSharedBucketIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket()
		b.keys[key(1).String()] = true
		b.put = errBucket
		s, failures := sharedWith(b)
		s.Remember(key(2))
		s.Remember(key(3))
		if !s.Seen(key(1)) || !s.Seen(key(2)) || s.Seen(key(4)) {
			t.Error("it is not asked any more")
		}
		if asked, puts := b.counts(); asked != 2 || puts != 1 || failures() != 2 {
			t.Errorf("%d look-ups, %d puts, %d failures", asked, puts, failures())
		}
	})
}

// What could not be stored is stored when the bucket is back, in order and once.
func TestSharedPaysWhatItOwes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket()
		b.put = errBucket
		s, failures := sharedWith(b)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		for n := range uint64(5) {
			s.Remember(key(n))
		}
		time.Sleep(10 * time.Second)
		if failures() != 5 {
			t.Errorf("%d failures counted", failures())
		}
		if _, puts := b.counts(); puts > 15 {
			t.Errorf("%d tries in ten seconds", puts)
		}
		b.set(func() { b.put, b.puts = nil, nil })
		time.Sleep(bucketPause)
		synctest.Wait()
		var want []string
		for n := range uint64(5) {
			want = append(want, key(n).String())
		}
		if !slices.Equal(b.puts, want) {
			t.Errorf("stored %v", b.puts)
		}
		s.Remember(key(9)) // at once again
		if !b.keys[key(9).String()] || len(s.owed) != 0 {
			t.Error("still failing")
		}
		cancel()
		running.Wait()
	})
}

// Once Run could store something, the next caller does not wait for the pause to be over.
func TestSharedIsBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket()
		b.put = errBucket
		s, failures := sharedWith(b)
		s.Remember(key(1))
		b.put = nil
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		synctest.Wait()
		s.Remember(key(2))
		if !b.keys[key(1).String()] || !b.keys[key(2).String()] || failures() != 1 {
			t.Errorf("stored %v, %d failures", b.puts, failures())
		}
		cancel()
		running.Wait()
	})
}

func TestSharedOwesABoundedNumber(t *testing.T) {
	b := newFakeBucket()
	b.put = errBucket
	s, _ := sharedWith(b)
	for n := range uint64(maxOwed + 5) {
		s.Remember(quickKey(n))
	}
	if len(s.owed) != maxOwed || s.owed[0] != quickKey(5) || s.owed[maxOwed-1] != quickKey(maxOwed+4) {
		t.Errorf("owes %d", len(s.owed))
	}
}

// Run ends with its context, also while the bucket hangs.
func TestSharedRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket()
		b.hangs = true
		s, _ := sharedWith(b)
		s.Remember(key(1))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		synctest.Wait()
		start := time.Now()
		cancel()
		running.Wait()
		if time.Since(start) != 0 {
			t.Errorf("it took %s", time.Since(start))
		}
	})
}

func TestSharedIsConcurrent(t *testing.T) {
	b := newFakeBucket()
	s, _ := sharedWith(b)
	ctx, cancel := context.WithCancel(t.Context())
	var running, callers sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	for w := range uint64(8) {
		callers.Go(func() {
			for i := range uint64(500) {
				b.set(func() { b.put = nil })
				if i%50 == 0 {
					b.set(func() { b.put = errBucket })
				}
				s.Remember(key(w*1000 + i))
				s.Seen(key(i), key(i+1))
			}
		})
	}
	callers.Wait()
	cancel()
	running.Wait()
}

func TestKeyText(t *testing.T) {
	for n := range uint64(100) {
		text := key(n).String()
		if len(text) != 26 || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
			t.Errorf("%q", text)
		}
	}
}
