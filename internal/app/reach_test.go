package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// An app that comes and goes fills no log, and the last line is true.
func TestReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newReach(slog.New(slog.NewTextHandler(&log, nil)))
		lines := func() []string { return strings.Split(strings.TrimSpace(log.String()), "\n") }
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { r.run(ctx) })
		defer wg.Wait()
		defer cancel()

		refused := errors.New("refused")
		r.changed(nil)
		r.changed(refused)
		if got := lines(); len(got) != 2 || !strings.Contains(got[0], "is reachable") || !strings.Contains(got[1], "error=refused") || strings.Contains(log.String(), "changes=") {
			t.Errorf("%q", got)
		}
		for range 3000 {
			time.Sleep(100 * time.Millisecond)
			r.changed(nil)
			time.Sleep(100 * time.Millisecond)
			r.changed(refused)
		}
		if got := len(lines()); got > 4+10*4+1 || got < 30 {
			t.Errorf("%d lines in ten minutes", got)
		}
		r.changed(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		before := len(lines())
		if last := lines()[before-1]; !strings.Contains(last, "level=INFO") || !strings.Contains(last, "changes=") {
			t.Errorf("the last line is %s", last)
		}
		time.Sleep(time.Hour)
		r.changed(refused)
		if got := lines(); len(got) != before+1 || strings.Contains(got[before], "changes=") {
			t.Errorf("after an hour: %q", got[before:])
		}
	})
}
