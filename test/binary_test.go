package test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binaryDir holds the built sidecar, if a story needed it: as it is released, without the race detector that GOFLAGS may ask for.
var binaryDir string

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sidecar")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	path := filepath.Join(dir, "sidecar")
	out, err := exec.Command("go", "build", "-race=false", "-o", path, "../cmd/sidecar").CombinedOutput()
	if err != nil {
		return string(out), err
	}
	return path, nil
})

// process is a sidecar in a process of its own.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	log   *logLines
	ended chan struct{} // closed when it has ended
}

// environment is a whole configuration, as variables.
func (w *world) environment(more ...string) []string {
	return append([]string{
		"SIDECAR_NATS_URLS=" + strings.Join(w.urls, ","),
		"SIDECAR_APP_URL=" + w.app.url(),
		"SIDECAR_ADMIN_LISTEN=127.0.0.1:0",
		"SIDECAR_CONSUMERS_0_STREAM=" + stream,
		"SIDECAR_CONSUMERS_0_DURABLE=" + durable,
		"SIDECAR_CONSUMERS_0_RETRY_INITIAL=10ms",
		"SIDECAR_CONSUMERS_0_RETRY_MAX=50ms",
		"SIDECAR_CONSUMERS_0_BREAKER_FAILURES=0",
	}, more...)
}

// start runs the binary, configured by the environment alone.
func start(t testing.TB, env ...string) *process {
	t.Helper()
	log := &logLines{}
	return startLogging(t, log, log, env...)
}

// startLogging does so with a log that goes to w; what it returns knows the lines that come to log.
func startLogging(t testing.TB, w io.Writer, log *logLines, env ...string) *process {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, path)
	}
	p := &process{t: t, cmd: exec.Command(path, "run"), log: log, ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = env, w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() { p.signal(syscall.SIGKILL); <-p.ended })
	return p
}

// signal does nothing to a process that has ended.
func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// wait waits for the process to end and returns its exit code.
func (p *process) wait(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.t.Fatalf("the process did not end within %s:\n%s", within, p.log)
		return 0
	}
}

// kill ends the process at once.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// signalOn signals a process until it is waited for: a signal that comes right after another is the same one.
func signalOn(p *os.Process, s os.Signal) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.Signal(s) == nil {
		<-tick.C
	}
}
