// Package signals tells a first signal to stop from a second one.
package signals

import (
	"os"
	"time"
)

// Repeat is how soon after the first signal another one is the same: who ends a process may signal it, and then its group.
const Repeat = 250 * time.Millisecond

// Watch calls first for the first signal, and second for the first one that comes at least Repeat later. It returns after that, or
// when done is closed.
func Watch(signals <-chan os.Signal, done <-chan struct{}, first, second func(os.Signal)) {
	var begun time.Time
	for {
		select {
		case s := <-signals:
			switch {
			case begun.IsZero():
				begun = time.Now()
				first(s)
			case time.Since(begun) >= Repeat:
				second(s)
				return
			}
		case <-done:
			return
		}
	}
}
