package main

import (
	"fmt"
	"os"
	"time"
)

// store is the directory of the streams.
type store struct {
	dir       string
	temporary bool
}

// openStore makes the directory if it is missing, or a temporary one if none is named.
func openStore(dir string) (store, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return store{}, fmt.Errorf("--store: %w", err)
		}
		return store{dir: dir}, nil
	}
	dir, err := os.MkdirTemp("", "sidecar-dev-")
	if err != nil {
		return store{}, fmt.Errorf("make a temporary store (--store DIR names one): %w", err)
	}
	return store{dir: dir, temporary: true}, nil
}

const (
	removeTries = 20
	removePause = 20 * time.Millisecond
)

// close removes the directory if it is a temporary one.
func (s store) close() {
	if !s.temporary {
		return
	}
	for range removeTries { // a stream that was being made writes to the end; the system's own cleaning gets what is left
		if os.RemoveAll(s.dir) == nil {
			return
		}
		time.Sleep(removePause)
	}
}
