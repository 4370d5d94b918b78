package pipeline

import (
	"testing"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// A cause that is remembered once more takes no room twice: the room is bounded, and would not come back.
func TestRememberedTwice(t *testing.T) {
	g := &graves{aside: map[asideKey]*deadLetter{}}
	m := &jetstream.Message{Sequence: 7}
	for _, cause := range []string{"first", "second"} {
		dl := &deadLetter{attempt: attempt{message: m}, letter: jetstream.DeadLetter{Message: m, Error: cause}}
		if !g.remember(dl) {
			t.Fatal("there is no room")
		}
	}
	dl, ok := g.dug(m)
	if !ok || dl.letter.Error != "second" || g.remembered != 0 || len(g.aside) != 0 {
		t.Errorf("%v %+v, and %d bytes of %d causes stay", ok, dl, g.remembered, len(g.aside))
	}
}
