package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// inform tells a client of servers, and waits until it knows.
func (w *fakeWire) inform(servers ...string) {
	w.send(fmt.Appendf(nil, "INFO {\"server_id\":\"model\",\"version\":\"2.15.2\",\"proto\":1,\"headers\":true,\"max_payload\":1048576,\"connect_urls\":[\"%s\"]}\r\n",
		strings.Join(servers, `","`)))
	synctest.Wait()
}

// A client that takes the place of one that was closed knows the servers that the other was told of, and so does the one after it. None that is gone
// from the cluster is tried once another was connected to.
func TestServersThatWereFound(t *testing.T) {
	onWire(t, func(conn *Conn, w *fakeWire, _ *lockedText) {
		away := map[string]bool{}
		tried := map[string]int{}
		conn.dialer.setOpen(func(ctx context.Context, network, address string) (net.Conn, error) {
			if tried[address]++; away[address] {
				return nil, errors.New("refused")
			}
			return w.dial(ctx, network, address)
		})
		comes := func(to string) {
			t.Helper()
			for range 100 {
				if synctest.Wait(); conn.Connected() {
					break
				}
				time.Sleep(time.Second)
			}
			if at := conn.dialer.address; at != to || !conn.Connected() {
				t.Fatalf("connected %t to %s, want %s; tried %v", conn.Connected(), at, to, tried)
			}
		}
		w.inform("127.0.0.1:1", "127.0.0.1:2")
		away["127.0.0.1:1"] = true
		w.send([]byte("-ERR 'gone'\r\n"))
		synctest.Wait()
		comes("127.0.0.1:2")
		w.send([]byte("-ERR 'gone'\r\n"))
		synctest.Wait()
		comes("127.0.0.1:2")
		w.inform("127.0.0.1:3", "127.0.0.1:1")
		clear(tried)
		away["127.0.0.1:2"] = true
		w.set(true)
		w.set(false)
		comes("127.0.0.1:3")
		if tried["127.0.0.1:2"] > 0 {
			t.Errorf("tried %v", tried)
		}
	})
}

// What was found is handed on with the user, and to servers with TLS only where the name is known that their certificates are for.
func TestWhatIsHandedOn(t *testing.T) {
	const ip, other, host = "10.0.0.1:4222", "10.0.0.2:4222", "n2.cluster:4222"
	for name, c := range map[string]struct {
		configured, found []string
		scheme            string
		serverName        string
		want              []string
		name              string
	}{
		"plain":                    {[]string{"nats"}, []string{ip, host}, "nats", "", []string{ip, host}, ""},
		"one name":                 {[]string{"nats", "nats:4223"}, []string{ip, other}, "tls", "", []string{ip, other}, "nats"},
		"several names":            {[]string{"a", "b"}, []string{ip, host}, "tls", "", []string{host}, ""},
		"one name, found with one": {[]string{"a"}, []string{ip, host}, "tls", "", []string{host}, ""},
		"a name and an address":    {[]string{"a", "10.0.0.3"}, []string{ip}, "tls", "", nil, ""},
		"addresses":                {[]string{"10.0.0.3"}, []string{ip}, "tls", "", []string{ip}, ""},
		"the name is configured":   {[]string{"a", "b"}, []string{ip}, "tls", "c", []string{ip}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pool := []nats.Server{}
			for _, h := range slices.Concat(configuredHosts(c.configured), c.found) {
				pool = append(pool, nats.Server{URL: &url.URL{Scheme: c.scheme, User: url.UserPassword("u", "p"), Host: h}})
			}
			f := foundIn(pool, Config{URLs: c.configured, TLS: TLSConfig{ServerName: c.serverName}})
			var want []string
			for _, h := range c.want {
				want = append(want, c.scheme+"://u:p@"+h)
			}
			if !slices.Equal(f.hosts, c.want) || !slices.Equal(f.urls, want) || f.name != c.name {
				t.Errorf("%+v", f)
			}
		})
	}
}
