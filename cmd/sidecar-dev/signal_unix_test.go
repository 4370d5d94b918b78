//go:build unix

package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// command is the command as a process of its own, with a directory for its temporary store.
type command struct {
	*exec.Cmd
	lines  *bufio.Scanner
	stdout io.Closer
	tmp    string
}

func start(t *testing.T, args ...string) *command {
	t.Helper()
	c := &command{Cmd: exec.CommandContext(t.Context(), os.Args[0], append([]string{"--port", "0", "--admin", "127.0.0.1:0"}, args...)...), tmp: t.TempDir()}
	c.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+c.tmp)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.stdout, c.lines = out, bufio.NewScanner(out)
	return c
}

// until reads lines until one has text.
func (c *command) until(t *testing.T, text string) {
	t.Helper()
	for c.lines.Scan() {
		if strings.Contains(c.lines.Text(), text) {
			return
		}
	}
	t.Fatalf("there is no line with %q", text)
}

// end reads the rest, and returns it with the exit code.
func (c *command) end(t *testing.T) (rest string, code int) {
	t.Helper()
	var b strings.Builder
	for c.lines.Scan() {
		b.WriteString(c.lines.Text() + "\n")
	}
	_ = c.Wait() // the exit code says it
	if left, err := os.ReadDir(c.tmp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
	return b.String(), c.ProcessState.ExitCode()
}

func TestSignalStopsCleanly(t *testing.T) {
	t.Parallel()
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			c := start(t)
			c.until(t, " ack ")
			if err := c.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			rest, code := c.end(t)
			if code != exitOK {
				t.Errorf("exit code %d", code)
			}
			mustAddUp(t, table(t, rest))
		})
	}
}

// TestSecondSignalStopsAtOnce stops a command whose app never answers.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}, 100), make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		called <- struct{}{}
		<-answer
	}))
	defer app.Close()
	defer close(answer)
	c := start(t, "--app", app.URL)
	<-called
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	c.until(t, "stopping")
	go signalOn(c.Process, os.Interrupt)
	if rest, code := c.end(t); code != exitFailed || strings.Contains(rest, "Summary") {
		t.Errorf("exit code %d, %s", code, rest)
	}
}

// TestReaderGoesAway closes the pipe that the command writes to: it stops, and puts its store away.
func TestReaderGoesAway(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.until(t, "jetsidecar")
	if err := c.stdout.Close(); err != nil {
		t.Fatal(err)
	}
	if _, code := c.end(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// signalOn signals a process until it is waited for: a signal that comes right after another is the same one.
func signalOn(p *os.Process, s os.Signal) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.Signal(s) == nil {
		<-tick.C
	}
}
