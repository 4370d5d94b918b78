//go:build unix

package forward

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

// benchApp names the variable that makes the test binary an app: its value is the network to listen on, and the address.
const benchApp = "FORWARD_BENCH_APP"

func init() {
	if where := os.Getenv(benchApp); where != "" {
		serveBench(where)
	}
}

// serveBench is a trivial app in a process of its own, so that what is measured is the client alone. It ends with its input.
func serveBench(where string) {
	network, address, _ := strings.Cut(where, " ")
	l, err := net.Listen(network, address)
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString(l.Addr().String() + "\n")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(204)
	}))
}

// startBench starts the app and returns its address.
func startBench(tb testing.TB, where string) string {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchApp+"="+where)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(address)
}

func benchURL(tb testing.TB, network string) string {
	if network == "unix" {
		return "unix://" + startBench(tb, "unix "+filepath.Join(tb.TempDir(), "app.sock"))
	}
	return "http://" + startBench(tb, "tcp 127.0.0.1:0")
}

func benchMessage(size int) *Message {
	m := message(strings.Repeat("x", size))
	m.Header = map[string][]string{"Nats-Msg-Id": {"0b9f8a0e-7a5d-4c41"}, "Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "Content-Type": {"application/json"}}
	return m
}

// cpu is what this process has used, user and system.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// report runs f in all of workers at once, and reports what the CPU time of this process is for one call.
func report(b *testing.B, workers int, f func(context.Context) error) {
	if err := f(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetParallelism(workers)
	before := cpu()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		ctx, cancel := context.WithCancel(b.Context()) // as each worker of a pipeline has
		defer cancel()
		for pb.Next() {
			if err := f(ctx); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
}

func BenchmarkForward(b *testing.B) {
	for _, c := range []struct {
		name, network string
		size, workers int
	}{
		{"tcp/1KiB/1", "tcp", 1024, 1}, {"tcp/1KiB/32", "tcp", 1024, 32}, {"unix/1KiB/1", "unix", 1024, 1}, {"unix/1KiB/32", "unix", 1024, 32},
		{"tcp/64KiB/32", "tcp", 64 << 10, 32},
	} {
		b.Run(c.name, func(b *testing.B) {
			url := benchURL(b, c.network)
			client := newClient(b, nil, func(s *setup) { s.config.URL = url; s.options.Connections = 128 })
			tg, m := target(b, client, "POST"), benchMessage(c.size)
			report(b, c.workers, func(ctx context.Context) error {
				if r := client.Forward(ctx, tg, m); r.Kind != policy.Answered {
					return io.ErrUnexpectedEOF
				}
				return nil
			})
		})
	}
}

// The same request by http.Client alone, with a header that is at hand.
func BenchmarkBareClient(b *testing.B) {
	for _, workers := range []int{1, 32} {
		b.Run(map[int]string{1: "1", 32: "32"}[workers], func(b *testing.B) {
			url := benchURL(b, "tcp")
			c := newClient(b, nil, func(s *setup) { s.config.URL = url })
			h, _ := c.header(benchMessage(1024))
			client := &http.Client{Transport: c.newTransport(128)}
			defer client.CloseIdleConnections()
			body := benchMessage(1024).Body
			report(b, workers, func(ctx context.Context) error {
				req, err := http.NewRequestWithContext(ctx, "POST", url, bytes.NewReader(body))
				if err != nil {
					return err
				}
				req.Header = h
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				return resp.Body.Close()
			})
		})
	}
}

// What go-retryablehttp and http.Client cost around a try that costs nothing.
func BenchmarkRetryAlone(b *testing.B) {
	c := newClient(b, nil)
	tg, m := target(b, c, "POST"), benchMessage(1024)
	var tries atomic.Int64
	c.retry.HTTPClient.Transport = transportFunc(func(req *http.Request) (*http.Response, error) {
		tries.Add(1)
		return &exchangeOf(req.Context()).taken, nil
	})
	b.ReportAllocs()
	for b.Loop() {
		x := c.begin(b.Context(), tg, m)
		if _, err := c.retry.Do(&x.retried); err != nil {
			b.Fatal(err)
		}
		c.finish(x)
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func BenchmarkHeader(b *testing.B) {
	c := newClient(b, nil)
	m := benchMessage(1024)
	b.ReportAllocs()
	for b.Loop() {
		c.header(m)
	}
}

func BenchmarkWrite(b *testing.B) {
	c := newClient(b, nil)
	tg, m := target(b, c, "POST"), benchMessage(1024)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = c.write(buf[:0], tg, m)
	}
}

const plain = "HTTP/1.1 200 OK\r\nServer: app\r\nDate: Sun, 01 Mar 2026 12:00:00 GMT\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

// An answer as it mostly is, read by our own parser, and by net/http.
func BenchmarkReply(b *testing.B) {
	b.Run("own", func(b *testing.B) {
		answer := []byte(plain)
		b.ReportAllocs()
		for b.Loop() {
			if _, size := plainReply(answer); size == 0 {
				b.Fatal("not taken")
			}
		}
	})
	b.Run("net-http", func(b *testing.B) {
		text := strings.NewReader(plain)
		r := bufio.NewReader(text)
		b.ReportAllocs()
		for b.Loop() {
			text.Reset(plain)
			r.Reset(text)
			if _, err := http.ReadResponse(r, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
