//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// look is what one sidecar process held at a quiet moment.
type look struct {
	storm      int // after which
	slot       int
	life       string
	rss        int64 // bytes
	goroutines int64
	files      int64 // open descriptors, sockets among them
	sockets    int64
}

func (l look) String() string {
	return fmt.Sprintf("%s: %.1f MiB, %d goroutines, %d files, %d sockets", l.life, mib(l.rss), l.goroutines, l.files, l.sockets)
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

var lookHTTP = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// look reads what the running process holds: by /proc, and by its metrics.
func (s *sidecar) look(ctx context.Context) (look, error) {
	p, life := s.life()
	if p == nil {
		all := s.incarnations()
		return look{}, fmt.Errorf("it does not run: process %s ended with %d", all[len(all)-1].id, all[len(all)-1].exit)
	}
	l := look{slot: s.slot, life: life.id}
	dir := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return look{}, fmt.Errorf("a soak needs a Linux /proc: %w", err)
	}
	for _, fd := range fds {
		l.files++
		if to, err := os.Readlink(filepath.Join(dir, "fd", fd.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			l.sockets++
		}
	}
	if l.rss, err = field(filepath.Join(dir, "status"), "VmRSS:"); err != nil {
		return look{}, err
	}
	l.rss <<= 10 // it is in KiB
	l.goroutines, err = metric(ctx, "http://"+s.admin+"/metrics", "go_goroutines ")
	return l, err
}

// field is the number in the line of a file that starts so.
func field(path, name string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return number(f, name)
}

func metric(ctx context.Context, url, name string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := lookHTTP.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return number(resp.Body, name)
}

func number(r io.Reader, name string) (int64, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if words := strings.Fields(rest); ok && len(words) > 0 {
			return strconv.ParseInt(words[0], 10, 64)
		}
	}
	return 0, errors.Join(fmt.Errorf("there is no %q", name), lines.Err())
}
