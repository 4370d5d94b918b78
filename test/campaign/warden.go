//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// house is where a campaign lives: its directory and its processes. A second process, the warden, hears of both, and
// cleans up when the campaign ends without doing so itself: by a panic, or killed.
type house struct {
	dir  string
	self string // this binary
	keep bool

	warden *exec.Cmd
	mu     sync.Mutex
	tell   io.WriteCloser
	alive  map[*process]bool
}

func newHouse(keep bool) (*house, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	h := &house{self: self, keep: keep, alive: map[*process]bool{}}
	h.warden = exec.Command(self, "-warden")                   //nolint:gosec // G204: our own binaries, and go
	h.warden.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for it
	if h.tell, err = h.warden.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the warden: %w", err)
	}
	if err := h.warden.Start(); err != nil {
		return nil, fmt.Errorf("start the warden: %w", err)
	}
	if h.dir, err = os.MkdirTemp("", "campaign"); err != nil {
		h.close()
		return nil, err
	}
	if !keep {
		h.say("dir " + h.dir)
	}
	return h, nil
}

func (h *house) say(line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, _ = io.WriteString(h.tell, line+"\n") // without a warden there is still close
}

// close ends every process that is left, and removes the directory.
func (h *house) close() {
	h.mu.Lock()
	var left []*process
	for p := range h.alive {
		left = append(left, p)
	}
	h.mu.Unlock()
	for _, p := range left {
		p.kill()
	}
	_ = h.tell.Close()
	_ = h.warden.Wait()
	if h.dir != "" && !h.keep {
		_ = os.RemoveAll(h.dir)
	}
}

// process is a child.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// start runs a binary with its output in a file.
func (h *house) start(log string, env []string, path string, args ...string) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.Command(path, args...) //nolint:gosec // G204: our own binaries, and go
	cmd.Env, cmd.Stdout, cmd.Stderr = env, f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	h.mu.Lock()
	h.alive[p] = true
	h.mu.Unlock()
	h.say("+" + strconv.Itoa(cmd.Process.Pid))
	go func() {
		_ = cmd.Wait()
		h.say("-" + strconv.Itoa(cmd.Process.Pid))
		h.mu.Lock()
		delete(h.alive, p)
		h.mu.Unlock()
		close(p.ended)
	}()
	return p, nil
}

// signal does nothing to a process that has ended.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// exit is its exit code, -1 if a signal ended it.
func (p *process) exit() int { return p.cmd.ProcessState.ExitCode() }

// runWarden hears of processes and directories until its input ends, and then ends and removes what is left.
func runWarden(in io.Reader) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	pids, dirs := map[int]bool{}, []string{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		if dir, ok := strings.CutPrefix(line, "dir "); ok {
			dirs = append(dirs, dir)
			continue
		}
		pid, err := strconv.Atoi(line[min(1, len(line)):])
		if err != nil || pid <= 1 {
			continue
		}
		if line[0] == '+' {
			pids[pid] = true
		} else {
			delete(pids, pid)
		}
	}
	for pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	for _, dir := range dirs {
		_ = os.RemoveAll(dir)
	}
}

// moduleDir is where this module's sources are.
func moduleDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/jetsidecar/jetsidecar").Output()
	if err != nil {
		return "", fmt.Errorf("find the module's sources (run it inside the module, or give -sidecar): %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// buildSidecar builds the sidecar of this module into a directory; without the race detector, whatever GOFLAGS says, unless a flag asks for it.
func buildSidecar(ctx context.Context, dir string, flags ...string) (string, error) {
	tree, err := moduleDir(ctx)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "sidecar")
	args := append(append([]string{"build", "-race=false", "-o", path}, flags...), "./cmd/sidecar")
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // G204: go, with our own flags
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("build the sidecar: %w", err), errors.New(string(out)))
	}
	return path, nil
}
