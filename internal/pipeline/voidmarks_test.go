package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/dedupe"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// fakeMarks is a bucket from which nothing can be removed while it is away.
type fakeMarks struct {
	mu     sync.Mutex
	counts map[string]int
	away   bool
}

var errAway = errors.New("away")

func (f *fakeMarks) Count(_ context.Context, key string) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[key], nil
}

func (f *fakeMarks) Set(_ context.Context, key string, n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[key] = n
	return nil
}

func (f *fakeMarks) Remove(_ context.Context, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return errAway
	}
	delete(f.counts, key)
	return nil
}

func (f *fakeMarks) setAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

// marking is a pipeline that has no more than marks.
func marking(f *fakeMarks) *Pipeline {
	log := slog.New(slog.DiscardHandler)
	return &Pipeline{Parts: Parts{Marks: f, Log: log}, void: newVoidMarks(f, log)}
}

func pastItsLimit(n uint64) *attempt {
	created := time.Unix(1, 0)
	return &attempt{message: &jetstream.Message{Sequence: n, Stored: created}, scope: dedupe.NewScope("S", created, "d")}
}

// markThree lets three messages be tried past their limit, and get their verdicts.
func markThree(t *testing.T, p *Pipeline) {
	t.Helper()
	for n := range uint64(3) {
		a := pastItsLimit(n)
		p.mark(t.Context(), a)
		p.unmark(a)
	}
}

// However often a mark cannot be removed after a verdict, that alone is no crash loop.
func TestMarksOfVerdictsAreNoCrashLoop(t *testing.T) {
	f := &fakeMarks{counts: map[string]int{}, away: true}
	p := marking(f)
	for i := range 5 {
		a := pastItsLimit(1)
		if !p.mark(t.Context(), a) {
			t.Fatalf("a crash loop at try %d, and every one had a verdict", i+1)
		}
		p.unmark(a)
	}
}

// Marks of processes that died count beside those that are void.
func TestMarksOfDeadProcessesCount(t *testing.T) {
	for died := range 3 {
		t.Run(fmt.Sprint(died), func(t *testing.T) {
			f := &fakeMarks{counts: map[string]int{}, away: true}
			p := marking(f)
			a := pastItsLimit(1)
			p.mark(t.Context(), a)
			p.unmark(a)
			f.counts[p.markKey(a)] += died // elsewhere
			again := pastItsLimit(1)
			if got, want := p.mark(t.Context(), again), died < crashMarks; got != want {
				t.Errorf("tried %v with %d that died", got, died)
			}
			if died == crashMarks && again.decision.Reason != policy.ReasonCrashLoop {
				t.Errorf("decided %+v", again.decision)
			}
		})
	}
}

// Void marks are removed as soon as that works, and a stop tries it as long as there is time.
func TestVoidMarksAreRemoved(t *testing.T) {
	for _, stops := range []bool{false, true} {
		t.Run(fmt.Sprint("stops ", stops), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeMarks{counts: map[string]int{}, away: true}
				p := marking(f)
				markThree(t, p)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				var running sync.WaitGroup
				running.Go(func() {
					if stops {
						p.void.finish(ctx)
					} else {
						p.void.run(ctx)
					}
				})
				time.Sleep(5 * time.Second)
				if len(f.counts) != 3 {
					t.Errorf("%d messages have marks", len(f.counts))
				}
				f.setAway(false)
				time.Sleep(voidPauseMost)
				if _, left, _ := p.void.begin(); left || len(f.counts) > 0 {
					t.Errorf("%v stays, void %v", f.counts, left)
				}
				cancel()
				running.Wait()
			})
		})
	}
}

// A stop does not try on to remove what the user may not remove: it says what stays.
func TestVoidMarksThatMayNotBeRemovedEndAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeMarks{counts: map[string]int{}}
		p := marking(f)
		p.Marks = &deniedMarks{f}
		p.void.marks = p.Marks
		markThree(t, p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		p.void.finish(ctx)
		if d := time.Since(begun); d > lastRemoval {
			t.Errorf("the stop waits for %s", d)
		}
		if n := len(p.void.counts); n != 3 {
			t.Errorf("%d messages are known to keep their marks", n)
		}
	})
}

// deniedMarks are not removed: the server does not answer, and its refusal is known in the end.
type deniedMarks struct{ *fakeMarks }

func (*deniedMarks) Remove(ctx context.Context, _ string) error {
	<-ctx.Done()
	return fmt.Errorf("removing a mark: %w", jetstream.ErrDenied)
}

// What is remembered of marks that cannot be removed is bounded.
func TestVoidMarksAreBounded(t *testing.T) {
	f := &fakeMarks{counts: map[string]int{}, away: true}
	p := marking(f)
	for n := range uint64(maxVoid + 10) {
		a := pastItsLimit(n)
		p.mark(t.Context(), a)
		p.unmark(a)
	}
	if n := len(p.void.counts); n != maxVoid {
		t.Errorf("%d are remembered", n)
	}
}

// New marks are not written while old ones of the same message are removed, which could hit them.
func TestMarksAreWrittenAfterTheRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeMarks{counts: map[string]int{}, away: true}
		p := marking(f)
		a := pastItsLimit(1)
		p.mark(t.Context(), a)
		p.unmark(a)
		slow := &slowMarks{fakeMarks: f, let: make(chan struct{})}
		p.Marks, p.void.marks = slow, slow
		f.setAway(false)
		var running sync.WaitGroup
		running.Go(func() { p.void.removeAll(t.Context(), p.Marks.Remove) })
		synctest.Wait() // the removal is under way
		running.Go(func() { p.mark(t.Context(), pastItsLimit(1)) })
		synctest.Wait()
		close(slow.let)
		running.Wait()
		if n := f.counts[p.markKey(a)]; n != 1 {
			t.Errorf("%d marks of a try under way, want 1", n)
		}
	})
}

// slowMarks removes when it is told to.
type slowMarks struct {
	*fakeMarks
	let chan struct{}
}

func (s *slowMarks) Remove(ctx context.Context, key string) error {
	<-s.let
	return s.fakeMarks.Remove(ctx, key)
}

// A stop removes marks beside a removal that is under way, and waits for that one.
func TestMarksAreRemovedByTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeMarks{counts: map[string]int{}, away: true}
		p := marking(f)
		markThree(t, p)
		slow := &slowMarks{fakeMarks: f, let: make(chan struct{})}
		p.Marks, p.void.marks = slow, slow
		f.setAway(false)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.void.run(ctx) })
		running.Go(func() { p.void.finish(ctx) })
		synctest.Wait()
		close(slow.let)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(f.counts) > 0 || len(p.void.counts) > 0 || len(p.void.removing) > 0 {
			t.Errorf("left: %v, void %v", f.counts, p.void.counts)
		}
		cancel()
		running.Wait()
	})
}

// countedMarks are marks that cannot be counted, or of which something becomes right after they were.
type countedMarks struct {
	*fakeMarks
	fault error
	after func()
}

func (c *countedMarks) Count(ctx context.Context, key string) (int, error) {
	if c.fault != nil {
		return 0, c.fault
	}
	n, err := c.fakeMarks.Count(ctx, key)
	if c.after != nil {
		c.after()
	}
	return n, err
}

// A verdict removes the marks of earlier processes also where they could not be counted before the try.
func TestVerdictRemovesMarksThatWereNotCounted(t *testing.T) {
	c := &countedMarks{fakeMarks: &fakeMarks{counts: map[string]int{}}}
	start := func() *Pipeline { p := marking(c.fakeMarks); p.Marks = c; return p }
	start().mark(t.Context(), pastItsLimit(1)) // dies
	c.fault = errors.New("no answer")
	p, a := start(), pastItsLimit(1)
	if !p.mark(t.Context(), a) {
		t.Fatal("it is not tried")
	}
	c.fault = nil
	p.unmark(a)
	start().mark(t.Context(), pastItsLimit(1)) // dies
	b := pastItsLimit(1)
	if !start().mark(t.Context(), b) {
		t.Errorf("%+v with a verdict between two that died", b.decision)
	}
}

// Void marks that are removed while they are counted are no evidence.
func TestVoidMarksRemovedWhileTheyAreCounted(t *testing.T) {
	f := &fakeMarks{counts: map[string]int{}}
	marking(f).mark(t.Context(), pastItsLimit(1)) // dies
	p := marking(f)
	c := &countedMarks{fakeMarks: f}
	p.Marks = c
	f.setAway(true)
	a := pastItsLimit(1)
	p.mark(t.Context(), a)
	p.unmark(a)
	f.setAway(false)
	c.after = func() { p.void.removeAll(t.Context(), f.Remove) }
	b := pastItsLimit(1)
	if !p.mark(t.Context(), b) {
		t.Errorf("%+v after a verdict", b.decision)
	}
}
