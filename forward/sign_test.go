package forward

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

const (
	secretOne = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretTwo = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDC2FVsBQIhrs="
)

// verify is a verifier as the specification (Standard Webhooks 1.0.0, "Signature scheme" and "Verifying signatures") has it.
func verify(header http.Header, body []byte, secret string, now time.Time) error {
	id, seconds := header.Get("webhook-id"), header.Get("webhook-timestamp")
	sent, err := strconv.ParseInt(seconds, 10, 64)
	switch age := now.Sub(time.Unix(sent, 0)); {
	case id == "" || strings.Contains(id, "."):
		return errors.New("no id, or one with a full stop: " + id)
	case err != nil || age < -time.Minute || age > 5*time.Minute:
		return errors.New("timestamp " + seconds)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + seconds + "." + string(body)))
	for signature := range strings.SplitSeq(header.Get("webhook-signature"), " ") {
		version, text, _ := strings.Cut(signature, ",")
		given, err := base64.StdEncoding.DecodeString(text)
		if version == "v1" && err == nil && hmac.Equal(given, mac.Sum(nil)) {
			return nil
		}
	}
	return errors.New("no signature is right: " + header.Get("webhook-signature"))
}

// The example of the specification's own libraries.
func TestPublishedSignature(t *testing.T) {
	s := newSigner([]string{secretOne})
	got := string(s.sign(nil, []byte("msg_p5jXN8AQM9LWM0D4loKWxJek"), appendSeconds(nil, time.Unix(1614265330, 0)), []byte(`{"test": 2432232314}`)))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSeconds(t *testing.T) {
	for want, when := range map[string]time.Time{"0000000000": {}, "0000000001": time.Unix(1, 0), "1614265330": time.Unix(1614265330, 9e8), "9999999999": time.Unix(9999999999, 0)} {
		if got := string(appendSeconds([]byte("x"), when)); got != "x"+want {
			t.Errorf("%s, want x%s", got, want)
		}
	}
}

func TestSigningSecretFaults(t *testing.T) {
	for _, good := range []string{secretOne, secretTwo, strings.TrimPrefix(secretOne, "whsec_"), base64.StdEncoding.EncodeToString(make([]byte, 64))} {
		if err := CheckSigningSecret(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "whsec_", "hunter2hunter2", "whsec_hunter2!", "whsec_" + base64.StdEncoding.EncodeToString([]byte("hunter2")), secretOne + "\n",
		base64.StdEncoding.EncodeToString(make([]byte, 23)), base64.StdEncoding.EncodeToString(make([]byte, 65)), "whsk_" + secretOne[6:], "whsec_" + secretOne,
		strings.TrimRight(secretTwo, "="), " " + secretOne,
	} {
		err := CheckSigningSecret(bad)
		if err == nil || bad != "" && strings.Contains(err.Error(), bad) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	_, err := New(Config{URL: "http://a", SigningSecret: []string{secretOne, "hunter2"}, Headers: map[string]string{"webhook-ID": "x"}}, Options{Connections: 1})
	if err == nil || !strings.Contains(err.Error(), "signing_secret[1]: ") || !strings.Contains(err.Error(), "headers.webhook-ID: ") {
		t.Error(err)
	}
}

func TestWebhookID(t *testing.T) {
	for id, want := range map[string]string{
		"": "ORDERS:42:1772366400123456789", "order-1": "order-1", "a.b%2E c": "a%2Eb%252E%20c", "é\"": "%C3%A9%22", "\xff": "%FF", " a": "ORDERS:42:1772366400123456789",
	} {
		m := message("")
		m.Header = map[string][]string{"Nats-Msg-Id": {id}}
		if got := string(appendWebhookID([]byte("x"), m)); got != "x"+want {
			t.Errorf("%q: %s, want x%s", id, got, want)
		}
	}
}

// seen is what a request was to the app.
type seen struct {
	header http.Header
	body   []byte
	at     time.Time
}

// recorder is an app that keeps what it sees; statuses are its first answers, then it is 200.
type recorder struct {
	mu       sync.Mutex
	seen     []seen
	statuses []int
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, seen{req.Header.Clone(), body, time.Now()})
	status := http.StatusOK
	if len(r.statuses) > 0 {
		status, r.statuses = r.statuses[0], r.statuses[1:]
	}
	w.WriteHeader(status)
}

// overEach runs a test over each transport, with a client that signs.
func overEach(t *testing.T, run func(t *testing.T, c *Client, app *recorder)) {
	for _, protocol := range []string{"http1", "h2c", "net/http"} {
		t.Run(protocol, func(t *testing.T) {
			app := &recorder{}
			protocols := new(http.Protocols)
			protocols.SetHTTP1(true)
			protocols.SetUnencryptedHTTP2(true)
			l := listen(t)
			server := &http.Server{Handler: app, Protocols: protocols}
			served := make(chan struct{})
			go func() { defer close(served); _ = server.Serve(l) }()
			t.Cleanup(func() { _ = server.Close(); <-served })
			c := newClient(t, nil, func(s *setup) {
				s.config.URL, s.config.SigningSecret = "http://"+l.Addr().String(), []string{secretOne, secretTwo}
				if protocol == "h2c" {
					s.config.Protocol = protocol
				}
			})
			if protocol == "net/http" {
				c.links = nil
			}
			run(t, c, app)
		})
	}
}

func TestSignedRequests(t *testing.T) {
	overEach(t, func(t *testing.T, c *Client, app *recorder) {
		app.statuses = []int{503}
		for _, format := range []Format{"raw", CloudEvents, CloudEventsJSON} {
			for _, body := range []string{"", `{"a": 1}`, "\x00\xff", strings.Repeat("x", inlineBytes+1), strings.Repeat("x", 1<<20)} {
				m := message(body)
				m.Header = map[string][]string{"Webhook-Signature": {"v1,forged"}, "WEBHOOK-ID": {"forged"}, "webhook-timestamp": {"1"}, "X": {"webhook-timestamp: 1"}, "Nats-Msg-Id": {"a.b"}}
				tg := target(t, c, "POST").In(format)
				for range 2 {
					if r := c.Forward(t.Context(), tg, m); r.Kind != policy.Answered {
						t.Fatalf("%+v", r)
					}
				}
			}
		}
		if len(app.seen) != 30 {
			t.Fatalf("%d requests", len(app.seen))
		}
		for _, s := range app.seen {
			for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
				if len(s.header[name]) != 1 || strings.Contains(s.header.Get(name), "forged") {
					t.Errorf("%s: %q", name, s.header[name])
				}
			}
			for _, secret := range []string{secretOne, secretTwo} {
				if err := verify(s.header, s.body, secret, s.at); err != nil {
					t.Errorf("%d bytes: %v", len(s.body), err)
				}
			}
			if verify(s.header, append(s.body, ' '), secretOne, s.at) == nil || verify(s.header, s.body, "whsec_"+strings.Repeat("AAAA", 8), s.at) == nil {
				t.Error("another body or secret is taken")
			}
			if id := s.header.Get("Webhook-Id"); id != "a%2Eb" {
				t.Errorf("id %s", id)
			}
		}
	})
}

// A request is signed when it is sent, however long it waited for the app; an app that looks at the time would refuse it else.
func TestSignedWhenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		app := &recorder{statuses: []int{503}}
		c := newClient(t, n, func(s *setup) { s.config.SigningSecret = []string{secretOne} })
		m, tg := message("x"), target(t, c, "POST")
		done := start(t.Context(), c, tg, m)
		time.Sleep(time.Hour)
		n.set(raw(func(req *http.Request, w io.Writer) bool {
			app.seen = append(app.seen, seen{req.Header, []byte("x"), time.Now()})
			_, _ = io.WriteString(w, ok)
			return true
		}))
		<-done
		time.Sleep(time.Hour)
		c.Forward(t.Context(), tg, m)
		if len(app.seen) != 2 || app.seen[0].header.Get("webhook-id") != app.seen[1].header.Get("webhook-id") {
			t.Fatalf("%v", app.seen)
		}
		for _, s := range app.seen {
			if err := verify(s.header, s.body, secretOne, s.at); err != nil {
				t.Error(err)
			}
		}
	})
}

// A connection that turns out dead is replaced within the try; the request is signed anew.
func TestSignedAgainOnAnotherConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		var got []seen
		n.set(raw(func(req *http.Request, w io.Writer) bool {
			got = append(got, seen{req.Header, []byte("x"), time.Now()})
			_, _ = io.WriteString(w, ok)
			return false
		}))
		c := newClient(t, n, func(s *setup) { s.config.SigningSecret = []string{secretOne} })
		for range 3 {
			if r := c.Forward(context.Background(), target(t, c, "POST"), message("x")); r.Kind != policy.Answered {
				t.Fatalf("%+v", r)
			}
			time.Sleep(time.Second / 2)
		}
		for _, s := range got {
			if err := verify(s.header, s.body, secretOne, s.at); err != nil {
				t.Error(err)
			}
		}
	})
}
