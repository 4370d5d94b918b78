package test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// stateOfDurable is the file where a server keeps the state of the durable, and what is in it, read between two writes.
func (w *world) stateOfDurable(dir string) (file string, state []byte) {
	w.t.Helper()
	var before []byte
	eventually(w.t, func() bool {
		files, _ := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", stream, "obs", durable, "o.dat"))
		if len(files) != 1 {
			return false
		}
		file = files[0]
		before, state = state, nil
		state, _ = os.ReadFile(file)
		return len(state) > 0 && bytes.Equal(before, state)
	}, text("the state to be written"))
	return file, state
}

// A server that was killed comes back with an earlier state of the durable: it knows nothing of what it delivered since, and has to be told again
// what was settled. All goes on long before the ack wait, in order, and what is called again, where nothing is remembered, before what follows it.
func TestOrderAfterAServerForgot(t *testing.T) {
	for _, dedupe := range []string{"memory", "off"} {
		t.Run(dedupe, func(t *testing.T) {
			dir := t.TempDir()
			w := newWorldOn(t, localnats.Options{StoreDir: dir})
			w.app.on(always(reply{status: 200, delay: 10 * time.Millisecond}))
			w.publishKeys(5, 60)
			w.running(ordered("subject", func(c *config.Consumer) { c.AckWait, c.Dedupe.Store = 30*time.Second, dedupe }))
			eventually(t, func() bool { return w.app.count() >= 50 }, text("some calls"))
			file, state := w.stateOfDurable(dir)
			before := w.app.count()
			eventually(t, func() bool { return w.app.count() >= before+60 }, text("some calls more"))
			w.nats.Shutdown()
			w.must(os.WriteFile(file, state, 0o600))
			called := w.app.count()
			w.must(w.nats.Restart())
			w.waitDone()
			w.inOrderOf(w.app.all()[:called], bySubject)
			w.inOrderOf(w.app.all()[called:], bySubject)
			if dedupe != "off" {
				w.inOrder(bySubject)
				w.balance()
			}
		})
	}
}

// A durable that is reset to its floor delivers again what is leased, and forgets who leased it.
func TestOrderAfterAReset(t *testing.T) {
	w := newWorld(t)
	w.app.on(always(reply{status: 200, delay: 10 * time.Millisecond}))
	w.publishKeys(5, 60)
	w.running(ordered("subject", func(c *config.Consumer) { c.AckWait = 30 * time.Second }))
	for n := range 3 {
		eventually(t, func() bool { return w.app.count() >= 50*(n+1) }, text("some calls"))
		var answer struct {
			Seq uint64 `json:"reset_seq"`
		}
		if !w.api("CONSUMER.RESET."+stream+"."+durable, nil, &answer) || answer.Seq == 0 {
			t.Fatal("the durable is not reset")
		}
	}
	w.waitDone()
	w.inOrder(bySubject)
	w.balance()
}
