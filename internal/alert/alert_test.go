package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secretURL = "https://user:hunter2@receiver.example/hunter2?key=hunter2"

// receiver is what alerts are posted to.
type receiver struct {
	mu     sync.Mutex
	answer func(nth int) (status int, err error)
	refuse string // what has this in it gets 503
	slow   time.Duration
	posts  []*http.Request
	bodies []string // of the posts that were taken
	begun  int
	tried  []time.Time
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.begun++
	nth, answer, slow := r.begun, r.answer, r.slow
	refused := r.refuse != "" && strings.Contains(string(body), r.refuse)
	r.posts, r.tried = append(r.posts, req), append(r.tried, time.Now())
	r.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	status := 200
	switch {
	case refused:
		status = 503
	case answer != nil:
		status, err = answer(nth)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if status/100 == 2 {
		r.bodies = append(r.bodies, string(body))
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Location": {"https://elsewhere.example/"}}, Body: io.NopCloser(strings.NewReader("x")), Request: req}, nil
}

func (r *receiver) set(answer func(int) (int, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// refuses lets alerts with a text in them fail, and takes all others.
func (r *receiver) refuses(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer, r.refuse = nil, text
}

// statuses are those of the alerts that were taken.
func (r *receiver) statuses(t *testing.T) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var words []string
	for _, b := range r.bodies {
		var a Alert
		if err := json.Unmarshal([]byte(b), &a); err != nil {
			t.Fatal(err)
		}
		words = append(words, string(a.Status))
	}
	return strings.Join(words, " ")
}

func (r *receiver) tries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun
}

// story is a Watch under test, in a bubble.
type story struct {
	t     *testing.T
	depth uint64
	mu    sync.Mutex
	log   bytes.Buffer
	receiver
}

// deepen sets the depth.
func (s *story) deepen(depth uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.depth = depth
}

// at sets the depth and lets time pass.
func (s *story) at(depth uint64, d time.Duration) {
	s.deepen(depth)
	time.Sleep(d)
	synctest.Wait()
}

func (s *story) logged(level string) int {
	return strings.Count(s.log.String(), "level="+level)
}

// watched runs a story with a threshold of 10.
func watched(t *testing.T, format Format, tell func(*story)) *story {
	t.Helper()
	s := &story{t: t}
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		ctx, cancel := context.WithCancel(t.Context())
		w := New(Config{Stream: "ORDERS", Consumer: "worker", DLQStream: "ORDERS_DLQ", Threshold: 10, URL: secretURL, Format: format, UserAgent: "test"}, Parts{
			State: func() (uint64, bool) {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.depth, s.depth > 10
			},
			Causes:    func(context.Context) map[string]int { return map[string]int{"rejected": 9, "max_deliver": 2} },
			Transport: &s.receiver,
			Log:       slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		tell(s)
		stopped := time.Now()
		cancel()
		<-done
		if d := time.Since(stopped); d > 0 {
			t.Errorf("the stop took %v", d)
		}
	})
	if strings.Contains(s.log.String(), "hunter2") || strings.Contains(s.log.String(), "receiver.example") {
		t.Errorf("the URL is in the log:\n%s", s.log.String())
	}
	return s
}

func TestOncePerCrossing(t *testing.T) {
	s := watched(t, JSON, func(s *story) {
		s.at(10, time.Minute)
		if s.tries() > 0 {
			t.Error("posted at the threshold")
		}
		for depth := uint64(11); depth < 30; depth++ {
			s.at(depth, 10*time.Second)
		}
		if got := s.statuses(t); got != "firing" {
			t.Errorf("above: %s", got)
		}
		s.at(11, time.Hour)
		s.at(10, time.Hour)
		if got := s.statuses(t); got != "firing resolved" {
			t.Errorf("back: %s", got)
		}
		s.at(99, time.Hour)
	})
	if got := s.statuses(t); got != "firing resolved firing" {
		t.Error(got)
	}
	if s.logged("ERROR") != 2 || s.logged("INFO") != 1 || s.logged("WARN") != 0 {
		t.Errorf("log:\n%s", s.log.String())
	}
	req := s.posts[0]
	user, password, _ := req.BasicAuth()
	if req.Method != "POST" || req.Header.Get("Content-Type") != "application/json" || req.Header.Get("User-Agent") != "test" || user != "user" || password != "hunter2" {
		t.Errorf("%s %v", req.Method, req.Header)
	}
}

func TestReceiverAway(t *testing.T) {
	refused := func(int) (int, error) { return 0, errors.New("dial tcp receiver.example: hunter2") }
	s := watched(t, JSON, func(s *story) {
		s.receiver.set(refused)
		s.at(11, time.Hour)
		n := s.tries()
		if n < 60 || n > 100 {
			t.Errorf("%d tries in an hour", n)
		}
		for i := 1; i < n; i++ {
			if d := s.tried[i].Sub(s.tried[i-1]); d < leastWait*3/4 || d > mostWait {
				t.Errorf("try %d comes %v after the one before", i+1, d)
			}
		}
		s.receiver.set(nil)
		s.at(11, 2*mostWait)
	})
	if got := s.statuses(t); got != "firing" {
		t.Error(got)
	}
	if n := s.logged("WARN"); n < 1 || n > 3 {
		t.Errorf("%d warnings in an hour:\n%s", n, s.log.String())
	}
}

// A state that was never told is not told once it is over: what the receiver gets is the newest, at once.
func TestNewerTakesThePlaceOfOlder(t *testing.T) {
	s := watched(t, JSON, func(s *story) {
		s.receiver.set(func(int) (int, error) { return 503, nil })
		s.at(11, 30*time.Minute)
		s.refuses("firing") // which is told until the recovery is seen
		s.at(1, 2*time.Second)
		if got := s.statuses(t); got != "resolved" {
			t.Errorf("2 s after the recovery: %s", got)
		}
		s.refuses("")
		s.at(1, time.Hour)
		s.receiver.set(func(int) (int, error) { return 503, nil })
		for i := range uint64(10) {
			s.at(20*(i%2), time.Minute)
		}
		s.at(20, 5*time.Second)
		s.receiver.set(nil)
		s.at(20, time.Hour)
	})
	if got := s.statuses(t); got != "resolved firing" {
		t.Error(got)
	}
}

// A post that is under way ends before the next one begins.
func TestInOrder(t *testing.T) {
	s := watched(t, JSON, func(s *story) {
		s.slow = 5 * time.Second
		s.at(11, 2*time.Second)
		s.at(1, 30*time.Second)
	})
	if got := s.statuses(t); got != "firing resolved" {
		t.Error(got)
	}
	if len(s.tried) != 2 || s.tried[1].Sub(s.tried[0]) < 5*time.Second {
		t.Errorf("posts at %v", s.tried)
	}
}

func TestEveryOtherAnswerIsAFailure(t *testing.T) {
	for _, status := range []int{302, 400, 404, 410, 429, 500} {
		s := watched(t, JSON, func(s *story) {
			s.receiver.set(func(nth int) (int, error) {
				if nth < 3 {
					return status, nil
				}
				return 204, nil
			})
			s.at(11, time.Minute)
		})
		if s.begun != 3 || s.statuses(t) != "firing" {
			t.Errorf("%d: %d posts, %s", status, s.begun, s.statuses(t))
		}
		for _, p := range s.posts {
			if p.URL.Host != "receiver.example" {
				t.Errorf("%d: posted to %s", status, p.URL.Host)
			}
		}
	}
}

func TestGivenUpAfterADay(t *testing.T) {
	s := watched(t, JSON, func(s *story) {
		s.receiver.set(func(int) (int, error) { return 500, nil })
		s.at(11, 48*time.Hour)
		if s.tries() != maxTries+1 {
			t.Errorf("%d tries", s.tries())
		}
		s.receiver.set(nil)
		s.at(0, time.Minute)
	})
	if got := s.statuses(t); got != "resolved" {
		t.Error(got)
	}
}

// A receiver that never answers holds up neither the watch nor a stop.
func TestStopDoesNotWait(t *testing.T) {
	s := watched(t, JSON, func(s *story) {
		s.slow = time.Hour
		s.at(11, 25*time.Second) // two posts timed out, the next is under way
		s.at(1, 2*time.Second)
	})
	if s.logged("INFO") != 1 || s.begun != 3 {
		t.Errorf("%d posts; log:\n%s", s.begun, s.log.String())
	}
}

func TestNoURLIsLogOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w := New(Config{Threshold: 1}, Parts{
			State:  func() (uint64, bool) { return 2, true },
			Causes: func(context.Context) map[string]int { t.Error("asked for causes"); return nil },
			Log:    slog.New(slog.NewTextHandler(&log, nil)),
		})
		w.Run(ctx)
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "level=ERROR") {
			t.Error(log.String())
		}
	})
}
