package dlq

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
)

// newID names a run, for no other to have the same name.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// owner says to people who a run is.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}
