package jetstream

import (
	"context"
	"errors"
	"fmt"
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

// Each refusal ends one publish to its subject, the one that has waited longest, and none that was answered.
func TestUntilRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(Config{}, quiet())
		defer c.end()
		a, answered := c.untilRefused(t.Context(), "x")
		b, over := c.untilRefused(t.Context(), "x")
		d, over2 := c.untilRefused(t.Context(), "x")
		other, over3 := c.untilRefused(t.Context(), "y")
		answered()
		c.endRefused(`Permissions Violation for Publish to "x"`)
		synctest.Wait()
		if !errors.Is(context.Cause(b), ErrDenied) || d.Err() != nil || other.Err() != nil || errors.Is(context.Cause(a), ErrDenied) {
			t.Errorf("a %v, b %v, d %v, other %v", context.Cause(a), context.Cause(b), d.Err(), other.Err())
		}
		over()
		over2()
		over3()
		if len(c.awaiting) != 0 {
			t.Errorf("%v stay", c.awaiting)
		}
	})
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
