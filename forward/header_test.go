package forward

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// wire is the request as it goes over the wire, read back; it holds that both transports send the same.
func wire(t testing.TB, c *Client, m *Message) (*http.Request, string, int) {
	t.Helper()
	tg := target(t, c, "POST")
	h, dropped := c.header(m)
	req := c.request(tg, h)
	x := &exchange{client: c, body: m.Body}
	x.rewind(req)
	var b bytes.Buffer
	if err := req.Write(&b); err != nil {
		t.Fatalf("net/http cannot write it: %v", err)
	}
	standard := readBack(t, b.String(), m.Body)

	text, leanDropped := c.write(nil, tg, m)
	x.body = m.Body
	text = append(text, x.more()...)
	lean := readBack(t, string(text), m.Body)
	if !reflect.DeepEqual(lean.Header, standard.Header) || lean.Host != standard.Host || lean.RequestURI != standard.RequestURI || lean.ContentLength != standard.ContentLength || leanDropped != dropped {
		t.Fatalf("lean:\n%s\nnet/http:\n%s", text, b.String())
	}
	return lean, string(text), dropped
}

func readBack(t testing.TB, text string, body []byte) *http.Request {
	t.Helper()
	r := bufio.NewReader(strings.NewReader(text))
	got, err := http.ReadRequest(r)
	if err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	read, err := io.ReadAll(got.Body)
	if err != nil || !bytes.Equal(read, body) || r.Buffered() != 0 {
		t.Fatalf("body %q, error %v, %d bytes left over", read, err, r.Buffered())
	}
	return got
}

func TestHeader(t *testing.T) {
	c := newClient(t, nil, func(s *setup) {
		s.config.Headers = map[string]string{"x-tenant": "t1", "X-Idempotency-Key": "fixed"}
		s.config.BearerToken = "secret"
		s.options.UserAgent = "jetsidecar/1"
	})
	m := message("hello")
	m.MaxDeliver = 10
	m.Header = map[string][]string{
		"Nats-Msg-Id": {"id-1", "id-2"}, "nats-msg-id": {"no"}, "Idempotency-Key": {"no"}, "NATS-SUBJECT": {"no"},
		"Nats-Rollup": {"sub"}, "traceparent": {"00-ab"}, "tracestate": {"a=b"}, "baggage": {"k=v"},
		"X-Many": {"1", "2", "1"}, "foo": {"c", "d"}, "Foo": {"b"}, "FOO": {"a"}, "Empty": {""}, "High": {"caf\xe9", "café"}, "Padded": {" p\t"},
		"Connection": {"close, X-Hop", "foo-hop,,\x00"}, "connection": {"x-other-hop"}, "X-Hop": {"no"}, "Foo-Hop": {"no"}, "x-OTHER-hop": {"no"},
		"Keep-Alive": {"no"}, "TE": {"trailers"}, "Trailer": {"X"}, "transfer-encoding": {"chunked"}, "Upgrade": {"h2c"}, "Http2-Settings": {"no"},
		"host": {"evil"}, "Host": {"evil"}, "content-length": {"3"}, "Content-Length": {"3"}, "expect": {"100-continue"}, "EXPECT": {"100-continue"},
		"Authorization": {"no"}, "authorization": {"no"}, "cookie": {"no"}, "Proxy-Authorization": {"no"}, "proxy-anything": {"no"},
		"Accept-Encoding": {"gzip"}, "Sidecar-Batch": {"4"}, "X-TENANT": {"no"}, "x-idempotency-key": {"no"},
		"bad name": {"1", "2"}, "bad:": {"3"}, "": {"4"}, "ümlaut": {"5"}, "none": {}, "no\x00": {},
		"Bad-Value": {"a\r\nHost: evil", "good", "b\x00", "\x7f"},
	}
	req, text, dropped := wire(t, c, m)
	want := http.Header{
		"Nats-Subject": {"orders.new"}, "Nats-Stream": {"ORDERS"}, "Nats-Consumer": {"worker"}, "Nats-Sequence": {"42"},
		"Nats-Time-Stamp": {"2026-03-01T12:00:00.123456789Z"}, "Nats-Num-Delivered": {"1"}, "Nats-Max-Deliver": {"10"}, "Nats-Num-Pending": {"7"},
		"Nats-Msg-Id": {"id-1"}, "Idempotency-Key": {"id-1"}, "Content-Type": {"application/octet-stream"}, "Content-Length": {"5"},
		"User-Agent": {"jetsidecar/1"}, "Accept-Encoding": {"identity"}, "Authorization": {"Bearer secret"}, "X-Tenant": {"t1"}, "X-Idempotency-Key": {"fixed"},
		"Nats-Rollup": {"sub"}, "Traceparent": {"00-ab"}, "Tracestate": {"a=b"}, "Baggage": {"k=v"},
		"X-Many": {"1", "2", "1"}, "Foo": {"a", "b", "c", "d"}, "Empty": {""}, "High": {"caf\xe9", "café"}, "Padded": {"p"}, "Bad-Value": {"good"},
	}
	for name := range req.Header {
		if !reflect.DeepEqual(req.Header[name], want[name]) {
			t.Errorf("%s: %q, want %q", name, req.Header[name], want[name])
		}
	}
	for name := range want {
		if req.Header[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	if dropped != 8 {
		t.Errorf("%d dropped", dropped)
	}
	if req.Host != "app:8080" || strings.Count(strings.ToLower(text), "\r\nhost:") != 1 || strings.Count(strings.ToLower(text), "\r\ncontent-length:") != 1 {
		t.Errorf("framing:\n%s", text)
	}
}

func TestHeaderCases(t *testing.T) {
	c := newClient(t, nil)
	long := strings.Repeat("k", 60_000)
	for name, tc := range map[string]struct {
		change  func(*Message)
		want    map[string][]string
		dropped int
	}{
		"no limit, no id":          {func(m *Message) {}, map[string][]string{"Nats-Max-Deliver": nil, "Nats-Msg-Id": nil, "Idempotency-Key": {"ORDERS:42:1772366400123456789"}}, 0},
		"an id HTTP cannot carry":  {func(m *Message) { m.Header = map[string][]string{"Nats-Msg-Id": {"a\x01b"}} }, map[string][]string{"Nats-Msg-Id": nil, "Idempotency-Key": {"ORDERS:42:1772366400123456789"}}, 1},
		"an id HTTP would trim":    {func(m *Message) { m.Header = map[string][]string{"Nats-Msg-Id": {"a "}} }, map[string][]string{"Nats-Msg-Id": {"a"}, "Idempotency-Key": {"ORDERS:42:1772366400123456789"}}, 0},
		"an empty id":              {func(m *Message) { m.Header = map[string][]string{"Nats-Msg-Id": {""}} }, map[string][]string{"Nats-Msg-Id": nil, "Idempotency-Key": {"ORDERS:42:1772366400123456789"}}, 0},
		"a long id":                {func(m *Message) { m.Header = map[string][]string{"Nats-Msg-Id": {long}} }, map[string][]string{"Idempotency-Key": {long}}, 0},
		"own type":                 {func(m *Message) { m.Header = map[string][]string{"content-type": {"text/plain"}} }, map[string][]string{"Content-Type": {"text/plain"}}, 0},
		"empty type":               {func(m *Message) { m.Header = map[string][]string{"Content-Type": {" "}} }, map[string][]string{"Content-Type": {"application/octet-stream"}}, 0},
		"own agents":               {func(m *Message) { m.Header = map[string][]string{"User-Agent": {"a", "b"}} }, map[string][]string{"User-Agent": {"a", "b"}}, 0},
		"own agent":                {func(m *Message) { m.Header = map[string][]string{"user-agent": {"a"}} }, map[string][]string{"User-Agent": {"a"}}, 0},
		"default agent":            {func(m *Message) {}, map[string][]string{"User-Agent": {"jetsidecar"}}, 0},
		"x-idempotency-key":        {func(m *Message) { m.Header = map[string][]string{"x-IDEMPOTENCY-key": {"a"}} }, map[string][]string{"X-Idempotency-Key": {"a"}}, 0},
		"a subject with a control": {func(m *Message) { m.Subject = "a\x02" }, map[string][]string{"Nats-Subject": nil}, 1},
		"whole seconds":            {func(m *Message) { m.Stored = time.Unix(0, 0).In(time.FixedZone("", 3600)) }, map[string][]string{"Nats-Time-Stamp": {"1970-01-01T00:00:00Z"}}, 0},
		"largest numbers": {func(m *Message) {
			m.Sequence, m.Delivered, m.MaxDeliver, m.Pending = 1<<64-1, 1<<64-1, 1<<64-1, 1<<64-1
		}, map[string][]string{"Nats-Sequence": {"18446744073709551615"}, "Nats-Num-Delivered": {"18446744073709551615"}, "Nats-Max-Deliver": {"18446744073709551615"}, "Nats-Num-Pending": {"18446744073709551615"}}, 0},
		"no time":    {func(m *Message) { m.Stored = time.Time{} }, map[string][]string{"Nats-Time-Stamp": {"0001-01-01T00:00:00Z"}}, 0},
		"empty body": {func(m *Message) { m.Body = nil }, map[string][]string{"Content-Length": {"0"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := message("x")
			tc.change(m)
			req, _, dropped := wire(t, c, m)
			for name, want := range tc.want {
				if got := req.Header[name]; !slices.Equal(got, want) {
					t.Errorf("%s: %.100q, want %.100q", name, got, want)
				}
			}
			if dropped != tc.dropped {
				t.Errorf("%d dropped", dropped)
			}
		})
	}
}

// The header of a message is only read.
func TestHeaderLeavesMessageAlone(t *testing.T) {
	c := newClient(t, nil)
	m := message("x")
	m.Header = map[string][]string{"foo": make([]string, 1, 8), "Foo": {"a"}, "User-Agent": {"1", "2"}}
	before := fmt.Sprint(m.Header)
	h, _ := c.header(m)
	h["Foo"] = append(h["Foo"], "z")
	h["Foo"][0] = "y"
	if fmt.Sprint(m.Header) != before {
		t.Errorf("%v became %v", before, m.Header)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add("Foo", "bar", "foo", "baz", "sub.ject", "id", []byte("body"))
	f.Add("content-length", "3", "Transfer-Encoding", "chunked", "s", " ", []byte{})
	f.Add("Connection", "Foo, close", "fOO", "\r\nX: y", "\x00", "a\xff", []byte("\r\n"))
	f.Add("bad name", "v", "", "v", "a b", "", []byte("x"))
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2, subject, id string, body []byte) {
		c := newClient(t, nil, func(s *setup) { s.config.BearerToken = "secret" })
		m := message("")
		m.Subject, m.Body = subject, body
		m.Header = map[string][]string{"Nats-Msg-Id": {id}}
		m.Header[name1] = append(m.Header[name1], value1, value2)
		m.Header[name2] = append(m.Header[name2], value2)
		req, text, dropped := wire(t, c, m)
		if dropped < 0 || dropped > 6 {
			t.Fatalf("%d dropped", dropped)
		}
		for _, single := range []string{"Nats-Stream", "Nats-Sequence", "Idempotency-Key", "Content-Length", "Authorization", "Accept-Encoding"} {
			if len(req.Header[single]) != 1 {
				t.Fatalf("%s: %q in\n%q", single, req.Header[single], text)
			}
		}
		if req.Header.Get("Idempotency-Key") == "" || req.Header.Get("Authorization") != "Bearer secret" || req.Host != "app:8080" || len(req.TransferEncoding) != 0 || req.Close {
			t.Fatalf("%q", text)
		}
	})
}

// Whatever the method, the length is told as net/http tells it.
func TestContentLength(t *testing.T) {
	c := newClient(t, nil)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "REPORT"} {
		for _, size := range []int{0, 1, inlineBytes, inlineBytes + 1} {
			m := message(strings.Repeat("x", size))
			tg := target(t, c, method)
			h, _ := c.header(m)
			req := c.request(tg, h)
			x := &exchange{client: c, body: m.Body}
			x.rewind(req)
			var want bytes.Buffer
			if err := req.Write(&want); err != nil {
				t.Fatal(err)
			}
			got, _ := c.write(nil, tg, m)
			got = append(got, x.more()...)
			for _, line := range []string{method + " / HTTP/1.1\r\n", "\r\nHost: app:8080\r\n", "\r\nContent-Length: ", "Content-Length: " + strconv.Itoa(size) + "\r\n"} {
				if bytes.Count(got, []byte(line)) != bytes.Count(want.Bytes(), []byte(line)) {
					t.Errorf("%s, %d bytes: %q in\n%.300s\nand not in\n%.300s", method, size, line, got, want.Bytes())
				}
			}
			if len(got) != want.Len() {
				t.Errorf("%s, %d bytes: %d bytes written, by net/http %d", method, size, len(got), want.Len())
			}
		}
	}
}

func TestPathsAndHosts(t *testing.T) {
	for _, c := range []struct{ url, path, want, host string }{
		{"http://app:8080", "/", "/", "app:8080"},
		{"http://app/base", "/orders", "/base/orders", "app"},
		{"http://app/base/", "/orders/", "/base/orders/", "app"},
		{"http://app/base", "/", "/base/", "app"},
		{"http://app/a%2Fb", "/c%2Fd", "/a%2Fb/c%2Fd", "app"},
		{"http://app/?a=1", "/x", "/x?a=1", "app"},
		{"http://app", "/ü", "/%C3%BC", "app"},
		{"http://app", "/a%2Fb/ü", "/a%2Fb/%C3%BC", "app"},
		{"http://app", "/a%2fb/{x}|\"^`<>\\[1]", "/a%2fb/%7Bx%7D%7C%22%5E%60%3C%3E%5C[1]", "app"},
		{"http://app/ü/a%2Fb", "/c%2Fd", "/%C3%BC/a%2Fb/c%2Fd", "app"},
		{"http://app/a b/", "/a;b=c:d@e!$&'()*+,~", "/a%20b/a;b=c:d@e!$&'()*+,~", "app"},
		{"http://app", "/a//b/../c", "/a//b/../c", "app"},
		{"http://[::1]:80", "/..", "/..", "[::1]:80"},
		{"unix:///run/app.sock", "/orders", "/orders", "localhost"},
	} {
		client := newClient(t, nil, func(s *setup) { s.config.URL = c.url })
		tg, err := client.Target("POST", c.path)
		if err != nil {
			t.Errorf("%s %s: %v", c.url, c.path, err)
			continue
		}
		if got := tg.url.RequestURI(); got != c.want || tg.url.Host != c.host {
			t.Errorf("%s with %s: %s at %s", c.url, c.path, got, tg.url.Host)
		}
	}
	client := newClient(t, nil)
	for _, bad := range [][2]string{{"", "/"}, {"PO ST", "/"}, {"CONNECT", "/"}, {"POST", "//other/x"}, {"POST", "http://other/"}, {"POST", "/a\nb"}, {"POST", "/%zz"}, {"POST", "/#f"}, {"POST", "/?q"},
		{"POST", ""}, {"POST", "orders"}, {"POST", "//"}, {"POST", "/x y"}} {
		if _, err := client.Target(bad[0], bad[1]); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestHostHeader(t *testing.T) {
	c := newClient(t, nil, func(s *setup) {
		s.config.URL = "http://user:pass@app"
		s.config.Headers = map[string]string{"host": "shop.example"}
	})
	req, _, _ := wire(t, c, message("x"))
	if req.Host != "shop.example" || req.Header.Get("Authorization") != "Basic dXNlcjpwYXNz" {
		t.Errorf("host %q, authorization %q", req.Host, req.Header.Get("Authorization"))
	}
	if _, err := New(Config{URL: "http://app", Headers: map[string]string{"Host": "a b"}}, Options{Connections: 1}); err == nil {
		t.Error("a host that cannot be sent is taken")
	}
}

func TestConfigFaults(t *testing.T) {
	_, err := New(Config{
		URL: "ftp://user:hidden@app", Protocol: "spdy", Timeout: -1, CAFile: "/nowhere.pem", BearerToken: "hid\nden",
		Headers: map[string]string{"a b": "hidden", "X-Bad": "hidden\x00", "Content-Length": "hidden", "nats-sequence": "hidden", "Authorization": "hidden", "connection": "hidden"},
		Ready:   ReadyConfig{Interval: -1},
	}, Options{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"url: neither", "protocol: ", "timeout: ", "ca_file: ", "bearer_token: ", `headers: "a b"`, "headers.X-Bad: ", "headers.Content-Length: ", "headers.nats-sequence: ", "headers.Authorization: ", "headers.connection: ", "ready.interval: ", "connections: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("says nothing of %q", want)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 13 {
		t.Errorf("%d faults", n)
	}
	if strings.Contains(err.Error(), "hid") {
		t.Errorf("a secret is in:\n%v", err)
	}
	for _, url := range []string{"", "app:8080", "http://", "http://:80", "http://user:hidden@[bad", "http://user:hidden@a/\x7f", "unix://host/p", "unix:", "unix:///", "http://a#f", "http://a:hidden/"} {
		if err := (Config{URL: url}).Validate(); err == nil || strings.Contains(err.Error(), "hidden@") {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, c := range []Config{{URL: "https://a", Protocol: "h2c"}, {URL: "http://a", Ready: ReadyConfig{Path: "http://b"}}} {
		if _, err := New(c, Options{Connections: 1}); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
