package forward

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

func TestAnswers(t *testing.T) {
	answered := func(status int, response string) policy.Outcome {
		o := policy.Outcome{Kind: policy.Answered, Status: status}
		if response != "" {
			o.Response = []byte(response)
		}
		return o
	}
	action := func(v policy.Verdict) policy.Outcome {
		return policy.Outcome{Kind: policy.Answered, Status: 200, Action: v}
	}
	none := policy.Outcome{Kind: policy.NoAnswer}
	const h = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"

	for name, c := range map[string]struct {
		answer string
		want   policy.Outcome
	}{
		"200":                   {ok, answered(200, "")},
		"200 with an odd body":  {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Type: ?\r\nContent-Encoding: gzip\r\n\r\n\x00\xff{", answered(200, "\x00\xff{")},
		"204":                   {"HTTP/1.1 204 No Content\r\n\r\n", answered(204, "")},
		"204 with a length":     {"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n", answered(204, "")},
		"304":                   {"HTTP/1.1 304 Same\r\n\r\n", answered(304, "")},
		"no reason phrase":      {"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", answered(200, "")},
		"chunked":               {"HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", answered(400, "abc")},
		"until closed":          {"HTTP/1.1 500 No\r\n\r\nall of it", answered(500, "all of it")},
		"HTTP/1.0":              {"HTTP/1.0 500 No\r\n\r\nall of it", answered(500, "all of it")},
		"redirect":              {"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", answered(302, "")},
		"redirect to nonsense":  {"HTTP/1.1 307 Found\r\nLocation: ht tp:\x01//%zz\r\nContent-Length: 0\r\n\r\n", none},
		"redirect to no URL":    {"HTTP/1.1 307 Found\r\nLocation: http://[::1/%zz\r\nContent-Length: 0\r\n\r\n", answered(307, "")},
		"1xx first":             {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + ok, answered(200, "")},
		"101":                   {"HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nany bytes", answered(101, "")},
		"status 999":            {"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", answered(999, "")},
		"status 000":            {"HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n", answered(0, "")},
		"large start":           {"HTTP/1.1 400 No\r\nContent-Length: 5000\r\n\r\n" + strings.Repeat("y", 5000), answered(400, strings.Repeat("y", 1024))},
		"nothing":               {"", none},
		"not HTTP":              {"220 mail ESMTP\r\n", none},
		"broken status":         {"HTTP/1.1 abc\r\n\r\n", none},
		"negative status":       {"HTTP/1.1 -20 No\r\n\r\n", none},
		"header cut off":        {"HTTP/1.1 200 OK\r\nContent-Le", none},
		"body cut off":          {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", none},
		"chunk cut off":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", none},
		"chunk broken":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", none},
		"two lengths":           {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", none},
		"header too large":      {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", none},
		"1xx for ever":          {strings.Repeat("HTTP/1.1 103 Early\r\nLink: "+strings.Repeat("x", 1000)+"\r\n\r\n", 100), none},
		"action":                {h + "Sidecar-Action: dlq\r\n\r\n", action(policy.DLQ)},
		"action in any case":    {h + "sidecar-ACTION:  ReTry \r\n\r\n", action(policy.Retry)},
		"unknown action":        {h + "Sidecar-Action: nak\r\n\r\n", action(0)},
		"empty action":          {h + "Sidecar-Action:\r\n\r\n", action(0)},
		"two actions":           {h + "Sidecar-Action: ack\r\nSidecar-Action: dlq\r\n\r\n", action(policy.DLQ)},
		"unknown action first":  {h + "Sidecar-Action: nak\r\nSidecar-Action: dlq\r\n\r\n", action(policy.DLQ)},
		"empty action first":    {h + "Sidecar-Action:\r\nSidecar-Action: retry\r\n\r\n", action(policy.Retry)},
		"actions in one":        {h + "Sidecar-Action: ack, Drop ,nak,\r\n\r\n", action(policy.Drop)},
		"the careful one first": {h + "Sidecar-Action: retry\r\nSidecar-Action: ack, dlq\r\n\r\n", action(policy.Retry)},
		"two reasons":           {h + "Sidecar-Reason:\r\nSidecar-Reason: a\r\nSidecar-Reason: b\r\n\r\n", policy.Outcome{Kind: policy.Answered, Status: 200, Reason: "a, b"}},
		"Retry-After, several":  {h + "Retry-After: soon\r\nRetry-After: 120\r\nRetry-After: Sat, 01 Jan 2000 00:01:00 GMT\r\n\r\n", policy.Outcome{Kind: policy.Answered, Status: 200, RetryAfter: 2 * time.Minute}},
		"reason":                {h + "Sidecar-Reason: no such order\r\n\r\n", policy.Outcome{Kind: policy.Answered, Status: 200, Reason: "no such order"}},
		"long reason":           {h + "Sidecar-Reason: " + strings.Repeat("r", 3000) + "\r\n\r\n", policy.Outcome{Kind: policy.Answered, Status: 200, Reason: strings.Repeat("r", 1024)}},
		"Retry-After":           {h + "Retry-After: 120\r\n\r\n", policy.Outcome{Kind: policy.Answered, Status: 200, RetryAfter: 2 * time.Minute}},
		"Retry-After, a date":   {h + "Retry-After: Sat, 01 Jan 2000 00:01:00 GMT\r\n\r\n", policy.Outcome{Kind: policy.Answered, Status: 200, RetryAfter: time.Minute}},
		"Retry-After, past":     {h + "Retry-After: Fri, 31 Dec 1999 00:01:00 GMT\r\n\r\n", policy.Outcome{Kind: policy.Answered, Status: 200}},
		"Retry-After, nonsense": {h + "Retry-After: -3\r\n\r\n", policy.Outcome{Kind: policy.Answered, Status: 200}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // whose clock begins with the year 2000
				n := &network{accept: raw(func(_ *http.Request, w io.Writer) bool {
					_, _ = io.WriteString(w, c.answer)
					return false
				})}
				client := newClient(t, n)
				got := client.Forward(t.Context(), target(t, client, "POST"), message("x"))
				if got.Kind == policy.NoAnswer && (got.Error == "" || !validValue(got.Error)) {
					t.Errorf("error %q", got.Error)
				}
				got.Error = ""
				if !equal(got.Outcome, c.want) || !got.Sent {
					t.Errorf("got %+v, want %+v", got.Outcome, c.want)
				}
			})
		})
	}
}

func equal(a, b policy.Outcome) bool {
	sameBody := string(a.Response) == string(b.Response)
	return sameBody && a.Kind == b.Kind && a.Status == b.Status && a.Action == b.Action && a.Reason == b.Reason && a.RetryAfter == b.RetryAfter
}

// Of an endless body 1 MiB is read, then the connection is closed; the status counts.
func TestEndlessBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		n := &network{accept: raw(func(_ *http.Request, w io.Writer) bool {
			_, err := io.WriteString(w, "HTTP/1.1 200 OK\r\n\r\n")
			for err == nil {
				var k int
				k, err = io.WriteString(w, strings.Repeat("z", 1000))
				sent += k
			}
			return false
		})}
		c := newClient(t, n)
		r := c.Forward(t.Context(), target(t, c, "POST"), message("x"))
		if r.Kind != policy.Answered || r.Status != 200 || len(r.Response) != 1024 {
			t.Errorf("%+v", r)
		}
		synctest.Wait()
		if sent < 1<<20 || sent > 1<<20+1<<17 {
			t.Errorf("%d bytes read", sent)
		}
	})
}

// An answer that comes before the request was read is an answer.
func TestEarlyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{accept: func(nc net.Conn) {
			_, _ = nc.Read(make([]byte, 100))
			_, _ = io.WriteString(nc, "HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n")
			time.Sleep(time.Second)
		}}
		c := newClient(t, n)
		r := c.Forward(t.Context(), target(t, c, "POST"), message(strings.Repeat("x", 1<<20)))
		if r.Kind != policy.Answered || r.Status != 413 {
			t.Errorf("%+v", r)
		}
		time.Sleep(2 * time.Second)
	})
}

func TestUnknownActionIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := &network{accept: always("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSidecar-Action: nak\r\n\r\n")}
		c := newClient(t, n, func(s *setup) { s.options.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		tg := target(t, c, "POST")
		for range 50 {
			c.Forward(t.Context(), tg, message("x"))
		}
		if said := log.String(); strings.Count(said, "unknown sidecar-action") != 1 || !strings.Contains(said, "stream=ORDERS consumer=worker value=nak") {
			t.Errorf("logged %q", said)
		}
		time.Sleep(29 * time.Second)
		c.Forward(t.Context(), tg, message("x"))
		if said := log.String(); strings.Count(said, "unknown sidecar-action") != 1 {
			t.Errorf("soon after logged %q", said)
		}
		c.Forward(t.Context(), target(t, c, "PUT"), message("x"))
		if said := log.String(); strings.Count(said, "unknown sidecar-action") != 2 {
			t.Errorf("of another consumer logged %q", said)
		}
		time.Sleep(2 * time.Second)
		c.Forward(t.Context(), tg, message("x"))
		if said := log.String(); strings.Count(said, "unknown sidecar-action") != 3 {
			t.Errorf("later logged %q", said)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	for _, answer := range []string{
		"", ok, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n",
		"HTTP/1.1 302 Found\r\nLocation: :\r\nSidecar-Action: ACK\r\nSidecar-Reason: \xff\r\nRetry-After: 9999999999999999999999\r\n\r\n",
		"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
	} {
		f.Add([]byte(answer), false)
		f.Add([]byte(answer), true)
	}
	f.Fuzz(func(t *testing.T, answer []byte, h2 bool) {
		synctest.Test(t, func(t *testing.T) {
			n := &network{accept: func(nc net.Conn) {
				go func() { _, _ = io.Copy(io.Discard, nc) }()
				_, _ = nc.Write(answer)
				time.Sleep(time.Second)
			}}
			c := newClient(t, n, func(s *setup) {
				if h2 {
					s.config.Protocol = "h2c"
				}
			})
			r := c.Forward(t.Context(), target(t, c, "POST"), message("x"))
			if r.Kind != policy.Answered && r.Kind != policy.NoAnswer {
				t.Fatalf("%+v", r)
			}
			if len(r.Response) > 1024 || len(r.Reason) > 1024 || r.RetryAfter < 0 || !validValue(r.Error) || (r.Kind == policy.NoAnswer) != (r.Error != "") {
				t.Fatalf("%+v", r)
			}
			time.Sleep(time.Minute)
		})
	})
}
