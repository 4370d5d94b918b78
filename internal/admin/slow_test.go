package admin_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/admin"
	"github.com/jetsidecar/jetsidecar/internal/admin/admintest"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/pipeline"
	"github.com/jetsidecar/jetsidecar/internal/telemetry"
)

// reader takes events, and nothing while somebody else has its turn.
type reader struct {
	*httptest.ResponseRecorder
	turn chan struct{}
}

func (r *reader) Write(b []byte) (int, error) {
	<-r.turn
	defer func() { r.turn <- struct{}{} }()
	return r.ResponseRecorder.Write(b)
}

func newReader() *reader {
	r := &reader{httptest.NewRecorder(), make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// hear is what came since the last time, the number of events of each name, and the last depth of each DLQ stream.
func (r *reader) hear() (n map[string]int, last map[string]string) {
	<-r.turn
	defer func() { r.turn <- struct{}{} }()
	n, last = map[string]int{}, map[string]string{}
	in := events{bufio.NewReader(strings.NewReader(r.Body.String()))}
	for {
		one, err := in.next()
		if err != nil {
			break
		}
		n[one.name]++
		if one.name == "dlq" {
			stream, depth, _ := strings.Cut(one.data, ",")
			last[strings.TrimPrefix(stream, `{"stream":`)] = depth
		}
	}
	r.Body.Reset()
	return n, last
}

// crowd is a server with many consumers, in a bubble of time.
type crowd struct {
	consumers []*admintest.Consumer
	server    *admin.Server
	ctx       context.Context
	all       sync.WaitGroup
}

func newCrowd(t *testing.T, n int, stream func(i int) string) *crowd {
	c := &crowd{}
	ctx, cancel := context.WithCancel(t.Context())
	c.ctx = ctx
	t.Cleanup(func() { cancel(); c.all.Wait() })
	var consumers []admin.Consumer
	for i := range n {
		one := admintest.NewConsumer("S", fmt.Sprint("c-", i))
		one.Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) { s.DLQStream = stream(i) })
		c.consumers, consumers = append(c.consumers, one), append(consumers, one.Admin())
	}
	letters := admintest.NewLetters("D")
	c.server = admin.New(admin.Options{
		Config: config.Admin{Token: "x"}, Ready: func() admin.Readiness { return admin.Readiness{} },
		Consumers: consumers, Letters: letters, Changes: letters,
	})
	c.all.Go(func() { c.server.Watch(ctx) })
	return c
}

func (c *crowd) listen(w http.ResponseWriter) {
	r := httptest.NewRequestWithContext(c.ctx, "GET", "/api/events", nil)
	r.Header.Set("Authorization", "Bearer x")
	c.all.Go(func() { c.server.Handler().ServeHTTP(w, r) })
}

func (c *crowd) depth(i int, depth uint64) {
	c.consumers[i].Change(func(s *pipeline.Status, _ *telemetry.Counts, _ *[]telemetry.Failure) { s.DLQDepth = depth })
}

// pass lets a time pass, and what happens in it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Consumers that share a DLQ stream know it as it was at different times: one number is told, that of the latest look, and only if it changed.
func TestOneDepthForEachDLQStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 30, func(int) string { return "D" })
		r := newReader()
		c.listen(r)
		pass(1500 * time.Millisecond)
		heard := func(change string, want int, depth string) {
			t.Helper()
			r.hear()
			pass(time.Second)
			if n, last := r.hear(); n["dlq"] != want || last[`"D"`] != depth || n["consumers"] != 1 {
				t.Errorf("%s: %v, %v", change, n, last)
			}
		}
		for i := range 30 {
			c.depth(i, uint64(100+i))
		}
		heard("all looked", 1, `"depth":129}`)
		heard("nothing changed", 0, "")
		c.depth(3, 140)
		heard("one stored an entry", 1, `"depth":140}`)
		c.depth(20, 0)
		heard("one saw it purged", 1, `"depth":0}`)
		heard("the others did not look yet", 0, "")
		for i := range 30 {
			c.depth(i, 0)
		}
		heard("all saw it purged", 0, "")
	})
}

func TestOverviewHasOneDepthForEachDLQStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 3, func(i int) string { return []string{"D", "D", "E"}[i] })
		c.depth(0, 7)
		c.depth(2, 9)
		r := newReader()
		c.listen(r)
		pass(time.Millisecond)
		var depths []string
		for _, part := range strings.Split(r.Body.String(), `"depth":`)[1:] {
			depths = append(depths, part[:1])
		}
		if got := strings.Join(depths, " "); got != "7 7 9" {
			t.Errorf("the consumers say %s", got)
		}
	})
}

// A reader that takes nothing for a while is not dropped by many events: it gets the latest about each thing. Nobody waits for it.
func TestSlowListenerGetsTheLatest(t *testing.T) {
	for name, stream := range map[string]func(int) string{
		"shared": func(int) string { return "D" },
		"apart":  func(i int) string { return fmt.Sprint("D", i) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, 30, stream)
				slow, quick := newReader(), newReader()
				c.listen(slow)
				c.listen(quick)
				pass(1500 * time.Millisecond)
				slow.hear()
				quick.hear()
				streams := map[string]string{}
				<-slow.turn
				for s := range 60 {
					for i := range 30 {
						c.depth(i, uint64(1000*s+i+1))
						streams[fmt.Sprintf("%q", stream(i))] = fmt.Sprintf(`"depth":%d}`, 59000+i+1)
					}
					pass(time.Second)
				}
				slow.turn <- struct{}{}
				synctest.Wait()
				n, last := slow.hear()
				if !maps.Equal(last, streams) {
					t.Errorf("the slow one ends with %v, want %v", last, streams)
				}
				if most := 2 * len(streams); n["dlq"] > most || n["consumers"] > 2 || n["history"] > 2 { // what was on its way, and what waited
					t.Errorf("the slow one got %v", n)
				}
				n, last = quick.hear()
				if !maps.Equal(last, streams) || n["dlq"] != 60*len(streams) || n["consumers"] != 60 || n["history"] != 12 || n["comment"] != 4 {
					t.Errorf("the quick one got %v, and ends with %v", n, last)
				}
				pass(time.Second)
				if n, _ := slow.hear(); n["consumers"] != 1 {
					t.Errorf("the slow one goes on with %v", n)
				}
			})
		})
	}
}

// pipes is a listener whose connections hold nothing: what is written waits until it is read.
type pipes struct {
	conns chan net.Conn
	done  context.Context
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done.Done():
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)} }

// A reader that takes nothing any more is dropped.
func TestStuckListenerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1, func(int) string { return "D" })
		here, there := net.Pipe()
		p := pipes{make(chan net.Conn, 1), c.ctx}
		p.conns <- there
		server := http.Server{Handler: c.server.Handler()}
		c.all.Go(func() { _ = server.Serve(p) })
		fmt.Fprint(here, "GET /api/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReaderSize(here, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		pass(admin.SendTimeout + 2*time.Second)
		if n, err := io.Copy(io.Discard, here); err != nil || n > 0 {
			t.Errorf("%d bytes come after the reader took nothing for a while: %v", n, err)
		}
		here.Close()
	})
}
