package test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

const (
	newSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	oldSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDC2FVsBQIhrs="
)

// signed reports whether a call has a right signature by a secret, as Standard Webhooks 1.0.0 says it.
func signed(c call, secret string) bool {
	id, seconds := c.header.Get("webhook-id"), c.header.Get("webhook-timestamp")
	sent, err := strconv.ParseInt(seconds, 10, 64)
	if age := time.Since(time.Unix(sent, 0)); err != nil || id == "" || age < -time.Minute || age > 5*time.Minute {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, seconds, c.body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return slices.Contains(strings.Split(c.header.Get("webhook-signature"), " "), want)
}

// sample is a message, and what it is as an event.
type sample struct {
	header []string
	body   string
	// Of the event: attributes that differ from those of a message that is none, its content type (in binary mode, in structured
	// mode) and its data.
	own          map[string]string
	binary, json string
	data         string // as the app reads it
}

var samples = map[string]sample{
	"JSON":   {nil, `{"total": 17}`, nil, "application/octet-stream", "application/json", `{"total": 17}`},
	"text":   {[]string{"Content-Type: text/plain; charset=utf-8", "Nats-Msg-Id: id 1"}, "naïve \"\n", map[string]string{"id": "id 1"}, "text/plain; charset=utf-8", "text/plain; charset=utf-8", "naïve \"\n"},
	"binary": {[]string{"Content-Type: image/png"}, "\x89PNG\x00\xff", nil, "image/png", "image/png", "\x89PNG\x00\xff"},
	"an event": {[]string{"ce-specversion: 1.0", "ce-id: a-1", "ce-source: /shop", "ce-type: com.shop.order", "ce-region: Z%C3%BCrich%20%22%25", "Content-Type: application/json"},
		`[1]`, map[string]string{"id": "a-1", "source": "/shop", "type": "com.shop.order", "subject": "", "time": "", "region": `Zürich "%`}, "application/json", "application/json", `[1]`},
	"an event in JSON": {[]string{"Content-Type: application/cloudevents+json"}, `{"specversion":"1.0","id":"a-2","source":"/shop","type":"com.shop.order","level":3,"subject":"x","data":{"a":1}}`,
		map[string]string{"id": "a-2", "source": "/shop", "type": "com.shop.order", "subject": "x", "time": "", "level": "3"}, "application/json", "", `{"a":1}`},
	"no event": {[]string{"Content-Type: application/cloudevents+json"}, `{"specversion":"1.0"`, nil, "application/octet-stream", "text/plain", `{"specversion":"1.0"`},
	"hostile":  {[]string{"ce-bad-name: x", "ce-time: never", "ce-x: a%0D%0Ab", "Connection: ce-id", "webhook-id: forged"}, "", nil, "application/octet-stream", "", ""},
}

// attributes are the attributes of the event that a message becomes.
func (s sample) attributes(w *world, seq uint64) map[string]string {
	stored := w.storedAt(seq)
	want := map[string]string{
		"specversion": "1.0", "id": fmt.Sprintf("%s:%d:%d", stream, seq, stored.UnixNano()), "source": "/nats/streams/" + stream,
		"type": "io.nats.jetstream.message", "subject": "orders.new", "time": stored.Format(time.RFC3339Nano),
	}
	maps.Copy(want, s.own)
	maps.DeleteFunc(want, func(_, value string) bool { return value == "" })
	return want
}

// binaryEvent is the event of a request in binary mode, as a receiver reads it.
func binaryEvent(c call) map[string]string {
	got := map[string]string{}
	for name, values := range c.header {
		if attribute, ok := strings.CutPrefix(name, "Ce-"); ok {
			got[strings.ToLower(attribute)] = percentDecoded(strings.Join(values, "|"))
		}
	}
	return got
}

func percentDecoded(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' {
			n, _ := strconv.ParseUint(s[i+1:i+3], 16, 8)
			b.WriteByte(byte(n))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// structuredEvent is the event of a request in structured mode, and its content type and data, as a receiver reads them.
func structuredEvent(t *testing.T, c call) (got map[string]string, contentType, data string) {
	var e map[string]json.RawMessage
	d := json.NewDecoder(bytes.NewReader([]byte(c.body)))
	if err := d.Decode(&e); err != nil || c.header.Get("Content-Type") != "application/cloudevents+json" {
		t.Fatalf("%v: %s %q", err, c.header.Get("Content-Type"), c.body)
	}
	got = map[string]string{}
	for name, value := range e {
		var s string
		if json.Unmarshal(value, &s) != nil {
			s = string(value)
		}
		switch name {
		case "datacontenttype":
			contentType = s
		case "data":
			data = s
		case "data_base64":
			decoded, err := base64.StdEncoding.DecodeString(s)
			if err != nil {
				t.Error(err)
			}
			data = string(decoded)
		default:
			got[name] = s
		}
	}
	return got, contentType, data
}

// Each message is an event, on the first delivery, on the next one and on a replay, and each request is signed.
func TestFormats(t *testing.T) {
	for _, format := range []string{"cloudevents", "cloudevents-json"} {
		t.Run(format, func(t *testing.T) {
			w := newWorld(t)
			w.app.on(each(reply{status: 503}, reply{status: 422}, reply{status: 200}))
			seqs := map[string]uint64{}
			for name, s := range samples {
				seqs[name] = w.publish("orders.new", s.body, s.header...)
			}
			w.running(func(c *config.Config) { c.App.SigningSecret = []string{newSecret, oldSecret} }, consumer(func(c *config.Consumer) { c.Format = format }))
			w.balance()
			env := w.environment("SIDECAR_CONSUMERS_0_FORMAT="+format, "SIDECAR_APP_SIGNING_SECRET="+newSecret+","+oldSecret)
			if s := w.dlqWith(env, "replay", "--yes"); s.code != 0 || len(w.dead()) != 0 {
				t.Fatalf("%+v", s)
			}
			for name, s := range samples {
				calls := w.app.of(seqs[name])
				if len(calls) != 3 {
					t.Fatalf("%s: %d calls", name, len(calls))
				}
				for _, c := range calls {
					checkEvent(t, name, format, c, s, s.attributes(w, seqs[name]))
					if !signed(c, newSecret) || !signed(c, oldSecret) || c.header.Get("webhook-id") != calls[0].header.Get("webhook-id") {
						t.Errorf("%s: %v", name, c.header)
					}
					if c.header.Get("Nats-Sequence") != strconv.FormatUint(seqs[name], 10) || c.header.Get("Nats-Subject") != "orders.new" {
						t.Errorf("%s: %v", name, c.header)
					}
				}
				same(t, name, calls[0], calls[2])
			}
		})
	}
}

func checkEvent(t *testing.T, name, format string, c call, s sample, want map[string]string) {
	t.Helper()
	got, contentType, data := binaryEvent(c), c.header.Get("Content-Type"), c.body
	if format == "cloudevents-json" {
		if len(got) != 0 {
			t.Errorf("%s: %v", name, c.header)
		}
		s.binary = s.json
		got, contentType, data = structuredEvent(t, c)
	}
	if !maps.Equal(got, want) || contentType != s.binary || data != s.data {
		t.Errorf("%s: %v, type %q, data %q\nwant %v, type %q, data %q", name, got, contentType, data, want, s.binary, s.data)
	}
}

// same holds that a replay is the first request, but for what says that it is one, and when it was signed.
func same(t *testing.T, name string, first, again call) {
	t.Helper()
	for _, differs := range []string{"Dlq-Replays", "Nats-Num-Delivered", "Nats-Num-Pending", "User-Agent", "Webhook-Timestamp", "Webhook-Signature"} {
		first.header.Del(differs)
		again.header.Del(differs)
	}
	if !maps.EqualFunc(first.header, again.header, slices.Equal) || first.body != again.body {
		t.Errorf("%s: the first request was %v %q\nthe replay %v %q", name, first.header, first.body, again.header, again.body)
	}
}

// Raw messages are signed as well: the body as it was sent, of whatever size.
func TestSignedRaw(t *testing.T) {
	w := newWorld(t)
	w.app.on(each(reply{status: 503}, reply{status: 200}))
	for _, body := range []string{"", "x", "\x00\xff", strings.Repeat("0123456789abcdef", 1<<14)} {
		w.publish("orders.a.b", body, "Nats-Msg-Id: v1."+strconv.Itoa(len(body)))
	}
	w.running(func(c *config.Config) { c.App.SigningSecret = []string{newSecret} })
	w.balance()
	for _, c := range w.app.all() {
		if !signed(c, newSecret) || signed(c, oldSecret) || c.header.Get("webhook-id") != fmt.Sprintf("v1%%2E%d", len(c.body)) {
			t.Errorf("%v", c.header)
		}
	}
}

// Without a secret the headers are nobody's, and a message may have them.
func TestNotSigned(t *testing.T) {
	w := newWorld(t)
	w.publish("orders.a", "x", "webhook-id: theirs")
	w.running()
	w.balance()
	if h := w.app.all()[0].header; h.Get("webhook-id") != "theirs" || h.Get("webhook-signature") != "" {
		t.Errorf("%v", h)
	}
}
