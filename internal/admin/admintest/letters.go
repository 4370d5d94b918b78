// Package admintest has dead letters and consumers that are made up, for tests of the admin listener and of its web page.
package admintest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

// Letters are dead letters in memory, of one DLQ stream for each name. They are admin.Letters and admin.Changes.
type Letters struct {
	// App is what a replay of an entry comes to; nil accepts all.
	App func(l *dlq.Letter) dlq.Outcome

	mu      sync.Mutex
	streams []string
	letters []*dlq.Letter
	next    uint64
	err     error
	gate    chan struct{} // readers and replays wait for it; nil: they do not
	waiting int
}

// NewLetters has no entries yet.
func NewLetters(streams ...string) *Letters { return &Letters{streams: streams, next: 1} }

// Add adds an entry and returns its sequence. What is not set is made up.
func (s *Letters) Add(l dlq.Letter) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(l)
}

func (s *Letters) add(l dlq.Letter) uint64 {
	if l.DLQStream == "" {
		l.DLQStream = s.streams[0]
	}
	l.Seq = s.next
	s.next++
	if l.Time.IsZero() {
		l.Time = time.Now()
	}
	l.Size = int64(len(l.Body))
	if utf8.Valid(l.Body) {
		text := string(l.Body)
		l.Text = &text
	}
	if l.Headers == nil {
		l.Headers = map[string][]string{}
	}
	s.letters = append(s.letters, &l)
	return l.Seq
}

// Fill adds n entries such as a system of orders has, the last one now.
func (s *Letters) Fill(n int) {
	causes := []struct {
		reason, err string
		status      int
	}{
		{"rejected", "total must not be negative", 422},
		{"max_deliver", "inventory is not reachable", 503},
		{"rejected", "unknown product", 404},
		{"max_deliver", "no whole answer within 30s", 0},
	}
	for i := range n {
		c := causes[[]int{0, 1, 0, 2, 0, 1, 3, 0, 1, 0}[i*7%10]]
		at := time.Now().Add(-time.Duration(n-1-i) * 7 * time.Second).UTC()
		subject := []string{"orders.new", "orders.changed", "orders.cancelled"}[i%3]
		body, _ := json.Marshal(map[string]any{"id": 4200 + i, "customer": "c-" + strconv.Itoa(i%97), "total": -12.5, "items": []map[string]any{
			{"product": "lamp", "count": 2, "price": 19.9}, {"product": "bulb", "count": 6, "price": 3.25},
		}})
		s.Add(dlq.Letter{
			Entry: dlq.Entry{
				Time: at, Stream: "ORDERS", Consumer: "orders-worker", Subject: subject, Sequence: uint64(90000 + i),
				Reason: c.reason, Status: c.status, Error: c.err, Deliveries: uint64(1 + 9*(i%2)), MsgID: fmt.Sprintf("order-%d", 4200+i),
			},
			Headers: map[string][]string{
				"Content-Type": {"application/json"}, "Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
				"Dlq-Reason": {c.reason}, "Dlq-Failed-At": {at.Format(time.RFC3339Nano)}, "Dlq-Response": {`{"error":"` + c.err + `"}`},
				"Dlq-Time-Stamp": {at.Add(-time.Minute).Format(time.RFC3339Nano)},
			},
			Body: body,
		})
	}
}

// Fail lets all that follows fail; nil ends that.
func (s *Letters) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Hold lets readers, and replays before each entry, wait until the returned func is called.
func (s *Letters) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.gate = nil
		s.mu.Unlock()
		close(gate)
	})
}

// Held is how many wait.
func (s *Letters) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

func (s *Letters) pass(ctx context.Context) error {
	s.mu.Lock()
	gate := s.gate
	s.waiting++
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.err
}

// Len is how many entries there are.
func (s *Letters) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.letters)
}

// Streams are the DLQ streams.
func (s *Letters) Streams() []string { return s.streams }

// selected are the entries of a filter, and how far each DLQ stream was read for them.
func (s *Letters) selected(f dlq.Filter) (found []*dlq.Letter, upTo []dlq.Cursor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.letters {
		if matches(f, l) {
			found = append(found, l)
		}
	}
	slices.SortStableFunc(found, func(a, b *dlq.Letter) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.DLQStream, b.DLQStream))
	})
	upTo = []dlq.Cursor{}
	for _, stream := range s.streams {
		upTo = append(upTo, dlq.Cursor{Stream: stream, Seq: s.next - 1})
	}
	if f.Limit > 0 && len(found) >= f.Limit {
		found = found[:f.Limit]
		for i := range upTo {
			upTo[i].Seq = 0
		}
		for _, l := range found {
			upTo[slices.Index(s.streams, l.DLQStream)].Seq = l.Seq
		}
	}
	return found, upTo
}

func matches(f dlq.Filter, l *dlq.Letter) bool {
	from, _ := f.After.Of(l.DLQStream)
	after := l.Seq > from
	within := f.UpTo == nil || slices.ContainsFunc(f.UpTo, func(c dlq.Cursor) bool { return c.Stream == l.DLQStream && l.Seq <= c.Seq })
	return after && within && (f.Stream == "" || f.Stream == l.DLQStream) && (f.Consumer == "" || f.Consumer == l.Consumer) &&
		(f.Subject == "" || f.Subject == l.Subject) && (f.Reason == "" || f.Reason == l.Reason) && (f.Status == nil || *f.Status == l.Status) &&
		!l.Time.Before(f.Since) && (f.Until.IsZero() || l.Time.Before(f.Until)) && l.Seq >= f.First && (f.Last == 0 || l.Seq <= f.Last)
}

// List is dlq.Service's.
func (s *Letters) List(ctx context.Context, f dlq.Filter) iter.Seq2[*dlq.Entry, error] {
	return func(yield func(*dlq.Entry, error) bool) {
		if err := s.pass(ctx); err != nil {
			yield(nil, err)
			return
		}
		found, _ := s.selected(f)
		for _, l := range found {
			if !yield(&l.Entry, nil) {
				return
			}
		}
	}
}

// Get is dlq.Service's.
func (s *Letters) Get(ctx context.Context, stream string, seq uint64) (*dlq.Letter, error) {
	if err := s.pass(ctx); err != nil {
		return nil, err
	}
	if found, _ := s.selected(dlq.Filter{Stream: stream, First: seq, Last: seq}); len(found) > 0 {
		return found[0], nil
	}
	return nil, dlq.ErrNotFound
}
