package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// playKeep runs a command that knows nothing of roles, and ends it when it should end itself: so nothing is left behind,
// even if the benchmark is killed. It says the command's process id.
func playKeep(ctx context.Context, r *role) error {
	var argv []string
	if err := json.Unmarshal([]byte(r.text("argv")), &argv); err != nil || len(argv) == 0 {
		return fmt.Errorf("no command: %w", err)
	}
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // G204: the sidecar, or what the user wants run
	if r.text("silent") == "" {               // else its output goes to /dev/null
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	if err := r.ready(strconv.Itoa(cmd.Process.Pid)); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	select {
	case <-ended:
		return fmt.Errorf("%s ended by itself: %s", argv[0], cmd.ProcessState)
	case <-ctx.Done():
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(stopLimit):
		_ = cmd.Process.Kill()
		<-ended
	}
	return nil
}

// startCommand runs a command in the care of a process of ours; what is measured is the command itself. Its output is kept,
// the end of it, unless it is silent.
func startCommand(name string, silent bool, env []string, argv ...string) (*process, error) {
	list, err := json.Marshal(argv)
	if err != nil {
		return nil, err
	}
	arguments := []string{"argv=" + string(list)}
	if silent {
		arguments = append(arguments, "silent=true")
	}
	p, err := startRoleIn(env, "keep", arguments...)
	if err != nil {
		return nil, err
	}
	p.name = name
	p.pid, err = strconv.Atoi(p.address)
	return p, err
}
