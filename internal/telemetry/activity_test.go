package telemetry

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

func TestCounts(t *testing.T) {
	c := telemetry().Consumer("S", "c")
	for i, r := range results {
		for range i + 1 {
			c.Settled(&pipeline.Settled{Result: r})
		}
	}
	c.Settled(&pipeline.Settled{Result: "unheard of"})
	c.Requested(0, 0)
	c.Requested(200, 0)
	c.InFlight(1)
	c.InFlight(1)
	c.InFlight(-1)
	want := Counts{Ack: 1, Retry: 2, DLQ: 3, Drop: 4, Duplicate: 5, Requests: 2, InFlight: 1}
	if got := c.Counts(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestLastFailures(t *testing.T) {
	c := telemetry().Consumer("S", "c")
	if f := c.Failures(); f == nil || len(f) != 0 {
		t.Errorf("at first: %v", f)
	}
	long := strings.Repeat("x", 1<<20)
	for seq := range uint64(50) {
		c.Settled(&pipeline.Settled{Sequence: seq, Result: pipeline.ResultAck})
		c.Settled(&pipeline.Settled{Sequence: seq, Result: pipeline.ResultDuplicate})
		c.Settled(&pipeline.Settled{Sequence: seq, Result: pipeline.ResultDrop})
		c.Settled(&pipeline.Settled{
			Subject: long, Sequence: seq, Delivered: 2, Result: pipeline.ResultRetry, Status: 503, Error: long, Delay: time.Second,
		})
	}
	got := c.Failures()
	if len(got) != maxFailures {
		t.Fatalf("%d failures are kept", len(got))
	}
	for i, f := range got {
		if f.Sequence != uint64(49-i) || f.Delivered != 2 || f.Status != 503 || f.Delay != time.Second || f.Result != pipeline.ResultRetry || f.Time.IsZero() {
			t.Errorf("failure %d: %+v", i, f)
		}
		if len(f.Subject) != maxFailureText || len(f.Error) != maxFailureText {
			t.Errorf("failure %d keeps %d and %d bytes of text", i, len(f.Subject), len(f.Error))
		}
	}
}

func TestFailuresWhileTheyHappen(t *testing.T) {
	c := telemetry().Consumer("S", "c")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				c.Settled(&pipeline.Settled{Result: pipeline.ResultDLQ, Reason: "rejected"})
				_, _ = c.Failures(), c.Counts()
			}
		})
	}
	wg.Wait()
	if n := c.Counts().DLQ; n != 2000 {
		t.Errorf("%d dead letters counted", n)
	}
}
