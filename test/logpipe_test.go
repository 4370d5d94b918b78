package test

import (
	"bufio"
	"os"
	"syscall"
	"testing"
)

// A sidecar whose log nobody reads any more works on, and stops as it should.
func TestLogThatIsClosed(t *testing.T) {
	w := newWorld(t)
	w.app.on(mixed)
	r, log, err := os.Pipe()
	w.must(err)
	p := startLogging(t, log, &logLines{}, w.environment("SIDECAR_CONSUMERS_0_MAX_DELIVER=4")...)
	w.must(log.Close())
	_, err = bufio.NewReader(r).ReadString('\n')
	w.must(err)
	w.must(r.Close())
	w.publishMixed()
	w.waitDone()
	w.fates()
	p.signal(syscall.SIGTERM)
	if code := p.wait(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
