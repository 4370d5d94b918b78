package signals

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A signal that comes again at once is the same one, whatever its kind; one a quarter of a second later is the second.
func TestWatch(t *testing.T) {
	for name, c := range map[string]struct {
		at   []time.Duration
		want string
	}{
		"none":                  {nil, ""},
		"one":                   {[]time.Duration{0}, "first at 0s "},
		"twice at once":         {[]time.Duration{0, 0}, "first at 0s "},
		"again and again":       {[]time.Duration{0, time.Millisecond, 100 * time.Millisecond, Repeat - 1}, "first at 0s "},
		"a second":              {[]time.Duration{0, Repeat}, "first at 0s second at 250ms "},
		"a second after a twin": {[]time.Duration{0, 0, time.Second, time.Second}, "first at 0s second at 1s "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals, done := make(chan os.Signal, 2), make(chan struct{})
				start, got := time.Now(), ""
				says := func(what string) func(os.Signal) {
					return func(os.Signal) { got += fmt.Sprintf("%s at %s ", what, time.Since(start)) }
				}
				var watching sync.WaitGroup
				watching.Go(func() { Watch(signals, done, says("first"), says("second")) })
				for i, at := range c.at {
					time.Sleep(at - time.Since(start))
					signals <- []os.Signal{syscall.SIGTERM, syscall.SIGINT}[i%2]
					synctest.Wait()
				}
				close(done)
				watching.Wait()
				if got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		})
	}
}
