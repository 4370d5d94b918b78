package config

import (
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/forward"
)

// notForHeaders are the headers that app.headers must not set: those of one connection or of the request's framing.
var notForHeaders = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Host", "Content-Length", "Expect"}

// perMessage are the headers that the sidecar sets for each message.
var perMessage = []string{"Nats-Subject", "Nats-Stream", "Nats-Consumer", "Nats-Sequence", "Nats-Time-Stamp",
	"Nats-Num-Delivered", "Nats-Max-Deliver", "Nats-Num-Pending", "Nats-Msg-Id", "Idempotency-Key", "Sidecar-Batch"}

// ofSignature are the headers that the sidecar sets for each request if there is a signing secret.
var ofSignature = []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"}

// leastTimeout is the shortest app.timeout.
const leastTimeout = time.Millisecond

// app checks where the app is and how it is spoken to.
func (c *checker) app() {
	a := c.l.App
	scheme, hasUser := c.appURL(a.URL)
	if a.Protocol == "h2c" && scheme == "https" {
		c.fault("app.protocol", "h2c is HTTP/2 without TLS and cannot be used with an https app.url")
	}
	c.atLeast("app.timeout", a.Timeout, leastTimeout, "no app answers in less")
	if a.CAFile != "" && scheme != "https" && scheme != "" {
		c.fault("app.ca_file", "is of use with an https app.url only")
	}
	c.contents("app.ca_file", a.CAFile, checkCAs)
	c.appHeaders(a, hasUser)
	if !validHeaderValue(a.BearerToken) || strings.ContainsAny(a.BearerToken, " \t") {
		c.fault("app.bearer_token", "holds blanks or control characters, which a token cannot")
	}
	if a.BearerToken != "" && hasUser {
		c.fault("app.bearer_token", "is given together with a user in app.url; both set the Authorization header")
	}
	c.signingSecret(a.SigningSecret)
	if a.Ready.Path != "" {
		c.urlPath("app.ready.path", a.Ready.Path)
	}
	c.atLeast("app.ready.interval", a.Ready.Interval, leastProbe, "less is a tight loop")
}

// appURL checks app.url; scheme is empty if it has none of ours.
func (c *checker) appURL(s string) (scheme string, hasUser bool) {
	u, err := url.Parse(s)
	switch {
	case err != nil && strings.Contains(s, "://"):
		c.fault("app.url", "is not a URL (special characters in user and password must be %%-escaped)")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "unix":
		c.fault("app.url", "must begin with http://, https:// or unix:///")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(s, "#"):
		c.fault("app.url", "must not have a query or fragment")
	case u.Scheme == "unix" && (u.Host != "" || u.User != nil || !path.IsAbs(u.Path) || path.Clean(u.Path) == "/"):
		c.fault("app.url", "must name a socket by its absolute path, as in unix:///run/app.sock")
	case u.Scheme != "unix" && u.Hostname() == "":
		c.fault("app.url", "has no host")
	case u.Scheme != "unix" && u.Port() != "" && !validPort(u.Port()):
		c.fault("app.url", "has a port that is not 1 to 65535")
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "unix" {
		return "", false
	}
	return u.Scheme, u.User != nil
}

// signingSecret checks the secrets that requests are signed with.
func (c *checker) signingSecret(secrets []string) {
	const key = "app.signing_secret"
	for i, secret := range secrets {
		at := "[" + strconv.Itoa(i) + "]"
		if err := forward.CheckSigningSecret(secret); err != nil {
			c.item(key, at, "", "%v", err)
		} else if slices.Contains(secrets[:i], secret) {
			c.item(key, at, "", "is given twice")
		}
	}
	if len(secrets) > 2 {
		c.item(key, "", "", "has %d secrets and may have two, the new and the old one of a rotation", len(secrets))
	}
}

func (c *checker) appHeaders(a forward.Config, hasUser bool) {
	headers, bearer := a.Headers, a.BearerToken
	seen := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		at := "." + name
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !validHeaderName(name):
			c.item("app.headers", "", quote(name), "is not a name that an HTTP header can have")
		case slices.Contains(notForHeaders, canonical):
			c.item("app.headers", at, "", "belongs to the connection or the framing of a request and cannot be set")
		case slices.Contains(perMessage, canonical):
			c.item("app.headers", at, "", "is set by the sidecar for each message")
		case seen[canonical]:
			c.item("app.headers", at, "", "is given twice, in different case")
		case canonical == "Authorization" && bearer != "":
			c.item("app.headers", at, "", "is given together with app.bearer_token; both set the Authorization header")
		case canonical == "Authorization" && hasUser:
			c.item("app.headers", at, "", "is given together with a user in app.url; both set the Authorization header")
		case slices.Contains(ofSignature, canonical) && len(a.SigningSecret) > 0:
			c.item("app.headers", at, "", "is given together with app.signing_secret, which sets it for each request")
		case canonical == "Content-Type" && slices.ContainsFunc(c.l.Consumers, func(c Consumer) bool { return c.Format == "cloudevents-json" }):
			c.item("app.headers", at, "", "is given together with format: cloudevents-json, which has a content type of its own")
		case canonical == "Content-Type" && slices.ContainsFunc(c.l.Consumers, func(c Consumer) bool { return c.Format == "cloudevents" && c.Batch.MaxMessages > 1 }):
			c.item("app.headers", at, "", "is given together with format: cloudevents and batches, which have a content type of their own")
		}
		if validHeaderName(name) && !validHeaderValue(headers[name]) {
			c.item("app.headers", at, "", "holds control characters, which an HTTP header cannot")
		}
		seen[canonical] = true
	}
}

// urlPath checks a path that is joined to app.url.
func (c *checker) urlPath(key, p string) {
	if err := forward.CheckPath(p); err != nil {
		c.fault(key, "%v", err)
	}
}

// method checks an HTTP method.
func (c *checker) method(key, m string) {
	if m == http.MethodPost || m == http.MethodPut || m == http.MethodPatch {
		return
	}
	c.fault(key, "must be POST, PUT or PATCH: a message is a body, and proxies may send other methods again on their own%s",
		didYouMean(m, []string{"POST", "PUT", "PATCH"}))
}

// listen checks where the admin listener is and returns its host.
func (c *checker) listen() (host string, ok bool) {
	host, port, err := net.SplitHostPort(c.l.Admin.Listen)
	if p, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || p > 65535 {
		c.fault("admin.listen", "must be host:port with a port of 0 to 65535, as in 127.0.0.1:9090")
	} else if strings.ContainsAny(host, " /@") {
		c.fault("admin.listen", "has a host that is none")
	} else {
		return host, true
	}
	return "", false
}

// admin checks the admin listener and the stop.
func (c *checker) admin() {
	if host, ok := c.listen(); ok && c.l.Admin.PProf && c.l.Admin.Token == "" && !loopback(host) {
		c.warn("admin.pprof", "has no effect: it needs admin.token or a loopback admin.listen")
	}
	if strings.ContainsFunc(c.l.Admin.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		c.fault("admin.token", "holds blanks or characters that an HTTP header cannot")
	}
	c.positive("shutdown_timeout", c.l.ShutdownTimeout)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
