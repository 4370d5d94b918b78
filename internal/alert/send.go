package alert

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

const (
	// postTimeout bounds one post, until its answer was read.
	postTimeout = 10 * time.Second
	// A post that failed is repeated after leastWait, doubling to mostWait: about a day long.
	leastWait, mostWait = time.Second, time.Minute
	maxTries            = 1440
	// complainEvery keeps the log of a receiver that stays away short.
	complainEvery = 30 * time.Minute
	// maxAnswer is how much of an answer is read.
	maxAnswer = 4 << 10
)

// errNewer ends the repeating of an alert that is not the newest any more.
var errNewer = errors.New("there is a newer alert")

// sender posts one alert after the other, in order. While one is repeated only the newest of those that follow is kept, and
// takes its place.
type sender struct {
	target    string
	format    Format
	userAgent string
	client    *retryablehttp.Client
	log       *slog.Logger
	next      chan Alert // the newest that is not being posted

	mu      sync.Mutex
	cancel  context.CancelFunc // of the alert being posted
	waiting bool               // between two tries of it
	tries   int                // that failed, in a row
	said    time.Time          // when a failure was last logged
}

func newSender(cfg Config, parts Parts) *sender {
	s := &sender{
		target: cfg.Format.target(cfg.URL), format: cfg.Format, userAgent: cfg.UserAgent, log: parts.Log, next: make(chan Alert, 1),
	}
	transport := parts.Transport
	if transport == nil {
		transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, DisableKeepAlives: true, // alerts are rare
		}
	}
	s.client = &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport:     transport,
			Timeout:       postTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		RetryMax: maxTries, RetryWaitMin: leastWait, RetryWaitMax: mostWait,
		CheckRetry: s.check, Backoff: s.wait, PrepareRetry: s.again,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return s
}

// put hands over the newest alert. It never waits; only one goroutine may call it.
func (s *sender) put(a Alert) {
	s.mu.Lock()
	defer s.mu.Unlock() // not before: what waits now is older than this alert
	select {
	case <-s.next:
	default:
	}
	s.next <- a
	if s.waiting {
		s.cancel()
	}
}

// run posts until ctx ends.
func (s *sender) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case a := <-s.next:
			if ctx.Err() == nil {
				s.post(ctx, a)
			}
		}
	}
}

// post posts an alert until the receiver took it, a newer one takes its place, or it is given up.
func (s *sender) post(ctx context.Context, a Alert) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.cancel, s.waiting = cancel, false
	s.mu.Unlock()
	body, err := s.format.encode(a, time.Now())
	if err != nil {
		s.log.Error("the alert cannot be encoded", slog.String("error", err.Error()))
		return
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, s.target, bytes.NewReader(body))
	if err != nil {
		s.log.Error("the alert cannot be posted: alert_url is no URL")
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", s.userAgent)
	resp, err := s.client.Do(req)
	if resp != nil && resp.Body != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
		resp.Body.Close()
	}
	if err == nil && resp.StatusCode/100 == 2 {
		s.took(a)
	} else if ctx.Err() == nil && !errors.Is(err, errNewer) {
		s.log.Error("the alert is given up", slog.String("status", string(a.Status)), slog.String("error", fault(resp, err)))
	}
}

// took notes that the receiver has an alert.
func (s *sender) took(a Alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tries > 0 {
		s.log.Info("the alert receiver took the alert", slog.String("status", string(a.Status)), slog.Int("failed_tries", s.tries))
	}
	s.tries, s.said = 0, time.Time{}
}

// check is told what came of a try, and reports whether to try again.
func (s *sender) check(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if err == nil && resp.StatusCode/100 == 2 {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if now := time.Now(); now.Sub(s.said) >= complainEvery {
		s.said = now
		s.log.Warn("the alert receiver did not take the alert, it is posted again", slog.String("error", fault(resp, err)))
	}
	return true, nil
}

// wait is how long to wait before the next try, of which a quarter is random. If there is a newer alert it ends the waiting.
func (s *sender) wait(least, most time.Duration, tries int, _ *http.Response) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = true
	if len(s.next) > 0 {
		s.cancel()
	}
	d := min(least<<min(tries, 16), most)
	return d - rand.N(d/4+1)
}

// again is asked before each further try. What is under way is never cut off, so that alerts arrive in order.
func (s *sender) again(*http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	if len(s.next) > 0 {
		return errNewer
	}
	return nil
}
