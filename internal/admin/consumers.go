package admin

import (
	"net/http"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

// mostAttempts bounds a retry schedule that is shown.
const mostAttempts = 50

// Pipeline tells how a consumer's pipeline is now. It is asked from any goroutine.
type Pipeline interface {
	Status() pipeline.Status
	LookAtDLQ() // soon: its depth changed
}

// Activity tells what happened in a pipeline. It is asked from any goroutine.
type Activity interface {
	Counts() telemetry.Counts
	Failures() []telemetry.Failure // the last ones, the latest first
}

// Consumer is one consumer that is served.
type Consumer struct {
	Config   config.Consumer
	Pipeline Pipeline
	Activity Activity
}

// Overview is the answer to GET /api/consumers, and without history and schedule each second's event.
type Overview struct {
	Time      time.Time       `json:"time"`
	Version   string          `json:"version"`
	Ready     bool            `json:"ready"`
	Checks    []Check         `json:"checks"`
	Consumers []ConsumerState `json:"consumers"`
}

// ConsumerState is how a consumer does.
type ConsumerState struct {
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	State    string `json:"state"`  // bound or waiting
	Detail   string `json:"detail"` // what it waits for, or what is worth to know

	Counts        Counts  `json:"counts"`
	Rates         Rates   `json:"rates"` // a second, over the last minute
	InFlight      int64   `json:"in_flight"`
	Leased        int     `json:"leased"`
	Parked        uint64  `json:"parked"`
	Pending       uint64  `json:"pending"`
	AckPending    uint64  `json:"ack_pending"`
	MaxAckPending int     `json:"max_ack_pending"` // 0: no limit, or not known yet
	Moved         uint64  `json:"moved"`           // to the retry stream, by this sidecar since its start
	Concurrency   int     `json:"concurrency"`
	Limit         int     `json:"concurrency_limit"` // requests that may be at the app now; less than concurrency if that is adaptive
	Prefetch      int     `json:"prefetch"`
	Breaker       Breaker `json:"breaker"`
	DLQ           DLQ     `json:"dlq"`
	Errors        []Error `json:"errors"` // the last ones, the latest first

	Retry   *Schedule `json:"retry,omitempty"`
	History *History  `json:"history,omitempty"`
}

// Counts are messages settled since the start, by verdict, and requests to the app.
type Counts struct {
	Ack       uint64 `json:"ack"`
	Retry     uint64 `json:"retry"`
	DLQ       uint64 `json:"dlq"`
	Drop      uint64 `json:"drop"`
	Duplicate uint64 `json:"duplicate"`
	Requests  uint64 `json:"requests"`
}

// Rates are the same a second.
type Rates struct {
	Ack       float64 `json:"ack"`
	Retry     float64 `json:"retry"`
	DLQ       float64 `json:"dlq"`
	Drop      float64 `json:"drop"`
	Duplicate float64 `json:"duplicate"`
	Requests  float64 `json:"requests"`
}

// Breaker is whether the app fails message after message.
type Breaker struct {
	Open   bool       `json:"open"`
	Since  *time.Time `json:"since"` // null while it is closed
	Reason string     `json:"reason"`
}

// DLQ is where a consumer's dead letters go.
type DLQ struct {
	Enabled bool   `json:"enabled"`
	Stream  string `json:"stream"`
	OK      bool   `json:"ok"` // it can take an entry, as far as is known
	Detail  string `json:"detail"`
	Depth   uint64 `json:"depth"` // of the stream: the same for all consumers that share it
}

// Error is a message that was retried or dead-lettered.
type Error struct {
	Time      time.Time `json:"time"`
	Subject   string    `json:"subject"`
	Sequence  uint64    `json:"sequence"`
	Delivered uint64    `json:"delivered"`
	Verdict   string    `json:"verdict"`
	Reason    string    `json:"reason"`
	Status    int       `json:"status"` // 0: no answer
	Error     string    `json:"error"`
	Delay     float64   `json:"delay"` // seconds until the next attempt
}

// History is the last minutes, the oldest point first.
type History struct {
	Step   float64 `json:"step"` // seconds
	Points []Point `json:"points"`
}

// Point is one step: rates within it, the rest at its end.
type Point struct {
	Time        time.Time `json:"time"`
	Rates       Rates     `json:"rates"`
	InFlight    int64     `json:"in_flight"`
	Leased      int       `json:"leased"`
	Parked      uint64    `json:"parked"`
	Pending     uint64    `json:"pending"`
	BreakerOpen bool      `json:"breaker_open"`
	DLQDepth    uint64    `json:"dlq_depth"`
}

// Schedule is when a message is tried again. Times are seconds.
type Schedule struct {
	MaxDeliver    int     `json:"max_deliver"` // 0: no limit
	MaxAge        float64 `json:"max_age"`     // 0: no limit
	RetryAfterMax float64 `json:"retry_after_max"`
	Attempts      []Delay `json:"attempts"` // from the second on
	More          bool    `json:"more"`     // later attempts are left out; they wait as long as the last one or longer, up to max
	Max           float64 `json:"max"`
}

// Delay is how long a message waits before an attempt.
type Delay struct {
	Attempt  int     `json:"attempt"`
	Shortest float64 `json:"shortest"`
	Longest  float64 `json:"longest"`
}

func scheduleOf(c config.Consumer) *Schedule {
	s := &Schedule{
		MaxDeliver: c.MaxDeliver, MaxAge: c.MaxAge.Seconds(), RetryAfterMax: c.Retry.RetryAfterMax.Seconds(), Max: c.Retry.Max.Seconds(),
		Attempts: []Delay{},
	}
	var before time.Duration
	for n := 2; c.MaxDeliver == 0 || n <= c.MaxDeliver; n++ {
		shortest, longest := c.Retry.Bounds(uint64(n - 1))
		if n > mostAttempts || c.MaxDeliver == 0 && longest == before {
			s.More = true
			break
		}
		s.Attempts = append(s.Attempts, Delay{n, shortest.Seconds(), longest.Seconds()})
		before = longest
	}
	return s
}

// watched is a consumer with its history.
type watched struct {
	Consumer
	schedule *Schedule
	history  history
}

func (w *watched) take(now time.Time) sample {
	return sample{at: now, counts: w.Activity.Counts(), status: w.Pipeline.Status()}
}

func (w *watched) state(now time.Time) ConsumerState {
	s := w.take(now)
	st, n := s.status, s.counts
	state := ConsumerState{
		Stream: w.Config.Stream, Consumer: w.Config.Durable, State: "waiting", Detail: st.Detail,
		Counts:   Counts{Ack: n.Ack, Retry: n.Retry, DLQ: n.DLQ, Drop: n.Drop, Duplicate: n.Duplicate, Requests: n.Requests},
		Rates:    w.history.rates(now, n),
		InFlight: n.InFlight, Leased: st.Leased, Parked: st.Parked(), Pending: st.Pending, AckPending: st.AckPending,
		MaxAckPending: st.MaxAckPending, Moved: st.Moved, Concurrency: w.Config.InFlight(), Limit: st.ConcurrencyLimit, Prefetch: w.Config.Prefetch,
		Breaker: Breaker{Open: st.BreakerOpen, Reason: st.BreakerCause},
		DLQ:     DLQ{Enabled: st.DLQEnabled, Stream: st.DLQStream, OK: st.DLQOK, Detail: st.DLQDetail},
		Errors:  errorsOf(w.Activity.Failures()),
	}
	if st.Bound {
		state.State = "bound"
	}
	if st.BreakerOpen {
		since := st.BreakerSince.UTC()
		state.Breaker.Since = &since
	}
	return state
}

func errorsOf(failures []telemetry.Failure) []Error {
	all := make([]Error, 0, len(failures))
	for _, f := range failures {
		all = append(all, Error{
			Time: f.Time.UTC(), Subject: f.Subject, Sequence: f.Sequence, Delivered: f.Delivered, Verdict: string(f.Result),
			Reason: f.Reason, Status: f.Status, Error: f.Error, Delay: f.Delay.Seconds(),
		})
	}
	return all
}

// overview is how everything is now; whole has history and schedule too.
func (s *Server) overview(now time.Time, whole bool) Overview {
	ready := s.ready()
	o := Overview{Time: now.UTC(), Version: s.version, Ready: ready.Ready, Checks: ready.Checks, Consumers: make([]ConsumerState, 0, len(s.consumers))}
	if o.Checks == nil {
		o.Checks = []Check{}
	}
	depths := s.depths.look(s.consumers)
	for _, w := range s.consumers {
		state := w.state(now)
		if state.DLQ.Enabled {
			state.DLQ.Depth = depths[state.DLQ.Stream]
		}
		if whole {
			state.Retry = w.schedule
			state.History = &History{Step: s.step.Seconds(), Points: w.history.points()}
		}
		o.Consumers = append(o.Consumers, state)
	}
	return o
}

func (s *Server) getConsumers(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, s.overview(time.Now(), true))
}
