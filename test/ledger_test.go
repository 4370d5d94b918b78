package test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// entry is one message of a DLQ stream.
type entry struct {
	seq     uint64
	subject string
	header  nats.Header
	body    string
}

// source is the sequence that an entry says it had in the source stream.
func (e entry) source() uint64 {
	n, _ := strconv.ParseUint(e.header.Get("Dlq-Sequence"), 10, 64)
	return n
}

// dead reads the whole DLQ stream; nothing if there is none.
func (w *world) dead() []entry {
	w.t.Helper()
	return w.read(dlq)
}

// read reads a whole stream, byte for byte.
func (w *world) read(name string) []entry {
	w.t.Helper()
	var all []entry
	info := w.streamInfo(name)
	if info == nil {
		return nil
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		if e, ok := w.message(name, seq); ok {
			all = append(all, e)
		}
	}
	return all
}

func (w *world) message(name string, seq uint64) (entry, bool) {
	w.t.Helper()
	var got struct {
		Error   *natsjs.APIError
		Message struct {
			Subject, Hdrs, Data string
		}
	}
	request, _ := json.Marshal(map[string]uint64{"seq": seq})
	if !w.has("STREAM.MSG.GET."+name, request, &got, &got.Error) {
		return entry{}, false
	}
	e := entry{seq: seq, subject: got.Message.Subject, header: nats.Header{}}
	body, err := base64.StdEncoding.DecodeString(got.Message.Data)
	w.must(err)
	e.body = string(body)
	if got.Message.Hdrs != "" {
		block, err := base64.StdEncoding.DecodeString(got.Message.Hdrs)
		w.must(err)
		if h, err := nats.DecodeHeadersMsg(block); err == nil {
			e.header = h
		}
	}
	return e, true
}

// waitDead waits until the DLQ has so many entries, and returns them.
func (w *world) waitDead(n int) []entry {
	w.t.Helper()
	dwindlesWithin(w.t, w.patience, func() int {
		info := w.streamInfo(dlq)
		if info == nil {
			return math.MaxInt
		}
		return n - int(info.State.Msgs)
	}, func() string { return fmt.Sprintf("%d entries in the DLQ, which has %d", n, len(w.dead())) })
	return w.dead()
}

// deadOf is the entry of a message, once it is there.
func (w *world) deadOf(seq uint64) (found entry) {
	w.t.Helper()
	eventually(w.t, func() bool {
		for _, e := range w.dead() {
			if e.source() == seq {
				found = e
			}
		}
		return found.seq > 0
	}, func() string { return fmt.Sprintf("message %d to be in the DLQ", seq) })
	return found
}

// quiet says that a message ends without the app or the DLQ having it: a duplicate, or a dead letter without a DLQ.
func (w *world) quiet(seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent[seq] = true
}

// last is the highest sequence that was published. The server's number of pending messages may be a moment behind it.
func (w *world) last() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var last uint64
	for _, seq := range w.published {
		last = max(last, seq)
	}
	return last
}

// waitDone waits until nothing is pending.
func (w *world) waitDone() {
	w.t.Helper()
	last := w.last()
	var info *natsjs.ConsumerInfo
	dwindlesWithin(w.t, w.patience, func() int {
		info = w.consumer(durable)
		waiting := w.waiting()
		if info == nil || waiting < 0 {
			return math.MaxInt
		}
		left := int(info.NumPending) + info.NumAckPending + waiting
		if info.Delivered.Stream < last {
			left++
		}
		return left
	}, func() string {
		if info == nil {
			return "the durable to be there"
		}
		return fmt.Sprintf("nothing pending: %d pending, %d ack pending, %d calls", info.NumPending, info.NumAckPending, w.app.count())
	})
}

// balance holds the promise: nothing is pending, every message was accepted by the app or is in the DLQ once, none both,
// and none was called again after it was accepted.
func (w *world) balance() {
	w.t.Helper()
	w.waitDone()
	w.balanceOf(w.app.all(), false)
}

// balanceAfterKills is balance where processes died: they may have taken with them that an answer was given.
func (w *world) balanceAfterKills() {
	w.t.Helper()
	w.waitDone()
	w.balanceOf(w.app.all(), true)
}

func (w *world) balanceOf(calls []call, killed bool) {
	w.t.Helper()
	accepted := w.acceptedOf(calls, killed)
	dead := w.ledgerOfDead()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, seq := range w.published {
		_, buried := dead[seq]
		delete(dead, seq)
		switch {
		case w.silent[seq] && (accepted[seq] || buried):
			w.t.Errorf("message %d: accepted %v, dead-lettered %v, want neither", seq, accepted[seq], buried)
		case accepted[seq] && buried:
			w.t.Errorf("message %d was accepted and dead-lettered", seq)
		case !w.silent[seq] && !accepted[seq] && !buried:
			w.t.Errorf("message %d was neither accepted nor dead-lettered", seq)
		}
	}
	for seq := range dead {
		w.t.Errorf("the DLQ has message %d, which was not published", seq)
	}
}

// acceptedOf is what the app accepted. A second call of a message, after that or while the first lasts, is a fault.
func (w *world) acceptedOf(calls []call, killed bool) map[uint64]bool {
	w.t.Helper()
	accepted, last := map[uint64]bool{}, map[uint64]call{}
	for _, c := range calls {
		if accepted[c.seq] && !killed {
			w.t.Errorf("message %d was called again, and the first call was accepted", c.seq)
		}
		if before, ok := last[c.seq]; ok && !killed && before.answered && c.begun.Before(before.ended) {
			w.t.Errorf("message %d was called twice at a time", c.seq)
		}
		last[c.seq] = c
		accepted[c.seq] = accepted[c.seq] || c.answered && c.reply.accepted()
	}
	return accepted
}

// ledgerOfDead is what the DLQ has, by source sequence: each message once, whole.
func (w *world) ledgerOfDead() map[uint64][]string {
	w.t.Helper()
	dead := map[uint64][]string{}
	for _, e := range w.dead() {
		dead[e.source()] = append(dead[e.source()], e.header.Get("Dlq-Part"))
	}
	for seq, parts := range dead {
		if got := fmt.Sprint(parts); got != "[]" && got != "[1/2 2/2]" {
			w.t.Errorf("message %d is in the DLQ as %q", seq, parts)
		}
	}
	return dead
}
