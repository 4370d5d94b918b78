package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// startLimit and stopLimit bound how long a process may take for it; one that keeps another has twice the time to stop.
	startLimit, stopLimit = 30 * time.Second, 10 * time.Second
	// tick is the unit of CPU times in /proc (USER_HZ, 100 on every Linux).
	tick = 10 * time.Millisecond
)

// process is one that was started here, and is ended here.
type process struct {
	name    string
	cmd     *exec.Cmd
	pid     int            // of what is measured: the process, or what it keeps
	in      io.WriteCloser // it ends with its input
	address string         // where it can be reached
	said    *tail
	ended   chan struct{}
}

// tail keeps the end of what a process writes.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-2000):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}

// startRole runs this program in a role, and waits until it is ready.
func startRole(name string, arguments ...string) (*process, error) {
	return startRoleIn(nil, name, arguments...)
}

// startRoleIn is startRole in another environment than this process's.
func startRoleIn(env []string, name string, arguments ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{roleArgument, name}, arguments...)...) //nolint:gosec // G204: this very program
	cmd.Env = env
	p := &process{name: name, cmd: cmd, said: &tail{}}
	p.cmd.Stderr = p.said
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	greeted := make(chan greeting, 1)
	go func() {
		var g greeting
		if json.NewDecoder(bufio.NewReader(out)).Decode(&g) == nil {
			greeted <- g
		}
	}()
	select {
	case g := <-greeted:
		p.address = g.Address
		return p, nil
	case <-p.ended:
		return nil, fmt.Errorf("%s ended: %s %s", name, p.cmd.ProcessState, p.said)
	case <-time.After(startLimit):
		p.stop()
		return nil, fmt.Errorf("%s is not ready after %s: %s", name, startLimit, p.said)
	}
}

func (p *process) start() error {
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.pid = p.cmd.Process.Pid
	p.ended = make(chan struct{})
	go func() { defer close(p.ended); _ = p.cmd.Wait() }() // ProcessState tells
	return nil
}

// begin tells a role to begin.
func (p *process) begin() error {
	_, err := io.WriteString(p.in, "begin\n")
	return err
}

// stop ends the process, at last by force. It does nothing to one that has ended.
func (p *process) stop() {
	_ = p.in.Close()
	select {
	case <-p.ended:
	case <-time.After(2 * stopLimit):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// cpu is the CPU time that the process has used, all of its threads.
func (p *process) cpu() (time.Duration, error) {
	text, err := p.proc("stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(text, ") ") // behind the name, which may hold anything
	fields := strings.Fields(rest)
	const user, system = 14 - 3, 15 - 3 // proc(5), from the third on
	if len(fields) <= system {
		return 0, fmt.Errorf("%s: /proc/PID/stat is short", p.name)
	}
	u, err := strconv.ParseInt(fields[user], 10, 64)
	if err != nil {
		return 0, err
	}
	s, err := strconv.ParseInt(fields[system], 10, 64)
	return time.Duration(u+s) * tick, err
}

// memory is the resident memory in bytes: now (VmRSS), or at most so far (VmHWM).
func (p *process) memory(field string) (int64, error) {
	text, err := p.proc("status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s: /proc/PID/status has no %s", p.name, field)
}

func (p *process) proc(file string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), file))
	if err != nil {
		return "", fmt.Errorf("measuring %s: %w (%s)", p.name, err, p.said)
	}
	return string(b), nil
}
