package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestRefusedAlone(t *testing.T) {
	answer := func(code natsjs.ErrorCode, text string) error {
		return fmt.Errorf("nats: %w", &natsjs.APIError{Code: 503, ErrorCode: code, Description: text})
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{answer(10077, "maximum messages per subject exceeded"), true},
		{answer(10077, "maximum messages exceeded"), false},
		{answer(10077, "maximum bytes exceeded"), false},
		{answer(10054, "message size exceeds maximum allowed"), true},
		{answer(10097, "header size exceeds maximum allowed of 64k"), true},
		{answer(10023, "insufficient resources"), false},
		{context.DeadlineExceeded, false},
	} {
		if got := isOfEntry(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	if err := fmt.Errorf("%w: %w", ownRefusal{ErrDenied}, ErrUnsure); !RefusedAlone(err) || !errors.Is(err, ErrDenied) || !errors.Is(err, ErrUnsure) {
		t.Error("a refusal of a part is none")
	}
}

// What /readyz says of the tries: a failure counts for all until an entry is stored, a refusal for its own subject does not once one was.
func TestOutcomes(t *testing.T) {
	denied, full := ownRefusal{ErrDenied}, errors.New("maximum messages exceeded")
	type step struct {
		seq     uint64
		subject string
		err     error
		ok      bool
		detail  string
	}
	for name, steps := range map[string][]step{
		"all fail": {{1, "a", full, false, full.Error()}, {2, "b", full, false, full.Error()}, {1, "a", nil, true, ""}},
		"too large": {{1, "a", ErrDeadLetterTooLarge, true, "message 1 is held back: " + ErrDeadLetterTooLarge.Error()},
			{2, "a", nil, true, "message 1 is held back: " + ErrDeadLetterTooLarge.Error()}, {1, "a", nil, true, ""}},
		"one subject is denied": {{1, "a", denied, false, denied.Error()}, {2, "b", nil, true, ""},
			{1, "a", denied, true, "message 1 is held back: " + denied.Error()}, {3, "a", denied, true, "message 3 is held back: " + denied.Error()},
			{4, "b", denied, false, denied.Error()}},
		"denied, granted, and denied again": {{1, "a", denied, false, denied.Error()}, {2, "b", nil, true, ""}, {1, "a", nil, true, ""},
			{3, "a", denied, false, denied.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			o, now := outcomes{denied: map[string]time.Time{}}, time.Unix(1700000000, 0)
			for i, s := range steps {
				began := now.Add(time.Millisecond)
				now = began.Add(time.Millisecond)
				o.note(try{s.seq, s.subject, began, now}, s.err)
				if ok, detail := o.state(now); ok != s.ok || detail != s.detail {
					t.Errorf("step %d: %v %q, want %v %q", i, ok, detail, s.ok, s.detail)
				}
			}
			if ok, detail := o.state(now.Add(refusalCounts)); !ok || detail != "" {
				t.Errorf("later: %v %q", ok, detail)
			}
		})
	}
}

// A failure of a try that began before another entry was stored does not count.
func TestALateFailureDoesNotCount(t *testing.T) {
	o, now := outcomes{denied: map[string]time.Time{}}, time.Unix(1700000000, 0)
	o.note(try{1, "a", now.Add(time.Second), now.Add(2 * time.Second)}, nil)
	o.note(try{2, "a", now, now.Add(5 * time.Second)}, errors.New("not confirmed"))
	if ok, detail := o.state(now.Add(5 * time.Second)); !ok || detail != "" {
		t.Errorf("%v %q", ok, detail)
	}
}

func TestRefusedPublish(t *testing.T) {
	for text, want := range map[string]string{
		`nats: permissions violation: Permissions Violation for Publish to "dlq.S.d.s.K1"`: "dlq.S.d.s.K1",
		`Permissions Violation for Publish to "dlq.a\"b.\\c"`:                              `dlq.a"b.\c`,
		`Permissions Violation for Subscription to "dlq.x"`:                                "",
		`Permissions Violation for Publish to dlq`:                                         "",
	} {
		if got, ok := refusedPublish(text); got != want || ok != (want != "") {
			t.Errorf("%s: %q %v", text, got, ok)
		}
	}
}

// A refusal says nothing of which publish to its subject it is: they are refused when there is one for each that was not answered.
func TestUntilRefused(t *testing.T) {
	const refusal = `Permissions Violation for Publish to "x"`
	denied := func(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrDenied) }
	for name, test := range map[string]func(t *testing.T, c *Conn){
		"all": func(t *testing.T, c *Conn) {
			a, aOver := c.untilRefused(t.Context(), "x")
			b, bOver := c.untilRefused(t.Context(), "x")
			other, otherOver := c.untilRefused(t.Context(), "y")
			c.endRefused(refusal) // perhaps of the second one, and the first is about to be sent
			if a.Err() != nil || b.Err() != nil {
				t.Error("one is ended by the other's refusal")
			}
			c.endRefused(refusal)
			if !denied(a) || !denied(b) || other.Err() != nil {
				t.Errorf("a %v, b %v, other %v", context.Cause(a), context.Cause(b), other.Err())
			}
			aOver(a.Err())
			bOver(b.Err())
			otherOver(nil)
		},
		"the first is stored": func(t *testing.T, c *Conn) {
			a, aOver := c.untilRefused(t.Context(), "x")
			b, bOver := c.untilRefused(t.Context(), "x")
			c.endRefused(refusal)
			aOver(nil)
			if denied(a) || !denied(b) {
				t.Errorf("a %v, b %v", context.Cause(a), context.Cause(b))
			}
			bOver(b.Err())
		},
		"the first is given up": func(t *testing.T, c *Conn) {
			ctx, cancel := context.WithCancel(t.Context())
			a, aOver := c.untilRefused(ctx, "x")
			cancel()
			aOver(a.Err())
			b, bOver := c.untilRefused(t.Context(), "x")
			c.endRefused(refusal)
			if b.Err() != nil {
				t.Error("it is ended by the refusal of the first")
			}
			bOver(nil)
		},
		"a refusal comes before another one begins": func(t *testing.T, c *Conn) {
			a, aOver := c.untilRefused(t.Context(), "x")
			b, bOver := c.untilRefused(t.Context(), "x")
			c.endRefused(refusal)
			begun := make(chan context.Context)
			var over func(error)
			go func() {
				var d context.Context
				d, over = c.untilRefused(t.Context(), "x")
				begun <- d
			}()
			synctest.Wait()
			select {
			case <-begun:
				t.Fatal("another one began before it is known who was refused")
			default:
			}
			c.endRefused(refusal)
			if d := <-begun; !denied(a) || !denied(b) || d.Err() != nil {
				t.Errorf("a %v, b %v, d %v", context.Cause(a), context.Cause(b), d.Err())
			}
			aOver(a.Err())
			bOver(b.Err())
			over(nil)
		},
		"no answer comes to the first": func(t *testing.T, c *Conn) {
			ctx, cancel := context.WithTimeout(t.Context(), putTimeout)
			defer cancel()
			a, aOver := c.untilRefused(ctx, "x")
			b, bOver := c.untilRefused(t.Context(), "x")
			c.endRefused(refusal)
			<-a.Done()
			aOver(a.Err())
			if denied(a) || !denied(b) {
				t.Errorf("a %v, b %v", context.Cause(a), context.Cause(b))
			}
			bOver(b.Err())
		},
		"the connection breaks": func(t *testing.T, c *Conn) {
			a, aOver := c.untilRefused(t.Context(), "x")
			b, bOver := c.untilRefused(t.Context(), "x")
			c.endRefused(refusal)
			c.away()
			d, dOver := c.untilRefused(t.Context(), "x") // over another one
			c.endRefused(refusal)
			if denied(a) || denied(b) || !denied(d) {
				t.Errorf("a %v, b %v, d %v", context.Cause(a), context.Cause(b), context.Cause(d))
			}
			aOver(a.Err())
			bOver(b.Err())
			dOver(d.Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(Config{}, quiet())
				test(t, c)
				time.Sleep(lateRefusal)
				_, over := c.untilRefused(t.Context(), "x")
				over(nil)
				c.outages.end()
				c.mu.Lock()
				defer c.mu.Unlock()
				c.end()
				if len(c.awaiting) != 0 {
					t.Errorf("%v stay", c.awaiting)
				}
			})
		})
	}
}

// Many dead letters of one subject that the user may not publish to are each refused at once.
func TestRefusedAtOnce(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	conn := b.denied("dlq.>")
	b.must(b.js.CreateStream(b.ctx, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}}))
	d := NewDeadLetters(conn, DeadLetterConfig{Stream: "D", Subject: "dlq.{stream}.{consumer}.{subject}", Create: true}, "S", "w", quiet())
	b.must(nil, d.Ensure(b.ctx))
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for i := range 100 {
				_, err := d.Put(b.ctx, DeadLetter{Message: &Message{Subject: "s.a", Sequence: uint64(g*1000 + i)}})
				if !errors.Is(err, ErrDenied) || errors.Is(err, ErrUnsure) {
					t.Errorf("%d: %v", g*1000+i, err)
				}
			}
		})
	}
	all.Wait()
}

// A DLQ stream that was full takes entries again, as soon as it is seen that it has room, also if what was refused is not tried again.
func TestRoomInADLQStreamThatWasFull(t *testing.T) {
	b := newBench(t, natsjs.StreamConfig{})
	b.must(b.js.CreateStream(b.ctx, natsjs.StreamConfig{Name: "S_DLQ", Subjects: []string{"dlq.S.*.>"}, MaxMsgs: 1, Discard: natsjs.DiscardNew}))
	d := NewDeadLetters(b.conn, DeadLetterConfig{Stream: "S_DLQ", Subject: "dlq.{stream}.{consumer}.{subject}"}, "S", "d", quiet())
	b.must(nil, d.Ensure(b.ctx))
	b.must(d.Put(b.ctx, DeadLetter{Message: &Message{Subject: "s.a", Sequence: 1}}))
	if _, err := d.Put(b.ctx, DeadLetter{Message: &Message{Subject: "s.a", Sequence: 2}}); !isFull(err) {
		t.Fatalf("the stream is not full: %v", err)
	}
	if err := d.Ensure(b.ctx); err == nil {
		t.Fatal("a look does not see that it is full")
	}
	stream, err := b.js.Stream(b.ctx, "S_DLQ")
	b.must(nil, err)
	b.must(nil, stream.Purge(b.ctx))
	b.must(nil, d.Ensure(b.ctx))
	if ok, detail, _ := d.State(); !ok || detail != "" {
		t.Errorf("it is still taken for full: %s", detail)
	}
}

// Room that a look found does not undo a refusal for another reason, nor one that came after the look.
func TestRoomSeen(t *testing.T) {
	now := time.Unix(1700000000, 0)
	full := &natsjs.APIError{ErrorCode: errStoreFailed, Description: fullOfBytes}
	for name, c := range map[string]struct {
		err   error
		began time.Time
		ok    bool
	}{
		"after":          {full, now.Add(time.Second), true},
		"before":         {full, now.Add(-time.Second), false},
		"another reason": {errors.New("not confirmed"), now.Add(time.Second), false},
	} {
		o := outcomes{denied: map[string]time.Time{}}
		o.note(try{1, "a", now, now}, c.err)
		o.roomSeen(c.began)
		if ok, _ := o.state(now.Add(2 * time.Second)); ok != c.ok {
			t.Errorf("a look %s: %v", name, ok)
		}
	}
	for bytes, want := range map[uint64]bool{0: true, 50: true, 51: false, 100: false} {
		info := &natsjs.StreamInfo{Config: natsjs.StreamConfig{MaxBytes: 100, Discard: natsjs.DiscardNew}, State: natsjs.StreamState{Bytes: bytes}}
		if roomy(info) != want {
			t.Errorf("of 100 bytes %d are taken: room %v", bytes, !want)
		}
	}
}
