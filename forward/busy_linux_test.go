package forward

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
)

// fullSocket is a unix socket that listens, and whose queue of connections is full.
func fullSocket(t *testing.T, path string) *os.File {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { _ = file.Close() })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		nc, err := net.Dial("unix", path)
		if errors.Is(err, syscall.EAGAIN) {
			return file
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
	}
}

// An app that does not accept for a while is waited for, and is not away.
func TestFullUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.sock")
	socket := fullSocket(t, path)
	var told changes
	c := newClient(t, nil, func(s *setup) { s.config.URL, s.options.OnAppChange = "unix://"+path, told.add })
	var tries atomic.Int32
	tried := make(chan struct{})
	c.dialer.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, address)
		if tries.Add(1) == 3 {
			close(tried)
		}
		return nc, err
	}
	done := start(t.Context(), c, target(t, c, "POST"), message("x"))
	<-tried
	l, err := net.FileListener(socket)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, "http1", func(http.ResponseWriter, *http.Request) {})
	if r := <-done; r.Status != 200 {
		t.Errorf("%+v", r)
	}
	told.expect(t, "up")
}
