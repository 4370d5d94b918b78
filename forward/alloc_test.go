//go:build unix && !race

package forward

import (
	"io"
	"net"
	"testing"

	"github.com/jetsidecar/jetsidecar/policy"
)

// What a forward allocates is the most of what it costs beside the system calls. Today it is three small pieces of
// http.Client, which go-retryablehttp calls.
func TestAllocationsPerForward(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		url, listener := map[string]string{"unix": "unix://"}[network], net.Listener(nil)
		if network == "tcp" {
			listener = listen(t)
			url = "http://" + listener.Addr().String()
		} else {
			path := t.TempDir() + "/app.sock"
			var err error
			if listener, err = net.Listen("unix", path); err != nil {
				t.Fatal(err)
			}
			url += path
		}
		c := newClient(t, nil, func(s *setup) { s.config.URL = url })
		keepIdleLinks(c)
		tg, m := target(t, c, "POST"), benchMessage(1024)
		request, _ := c.write(nil, tg, m)

		served := make(chan struct{})
		go func() { // an app that allocates nothing
			defer close(served)
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			defer nc.Close()
			buf, answer := make([]byte, len(request)), []byte(plain)
			for {
				if _, err := io.ReadFull(nc, buf); err != nil {
					return
				}
				_, _ = nc.Write(answer)
			}
		}()
		got := testing.AllocsPerRun(2000, func() {
			if r := c.Forward(t.Context(), tg, m); r.Kind != policy.Answered || string(r.Response) != "{}" {
				t.Fatalf("%+v", r)
			}
		})
		c.Close()
		_ = listener.Close()
		<-served
		if got > 5 { // the fourth is the answer's body, and one is to spare
			t.Errorf("%s: %v allocations", network, got)
		}
		t.Logf("%s: %v allocations", network, got)
	}
}
