package forward

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Validate reports every fault, each with its key below app. It does not look at files.
func (c Config) Validate() error {
	c, faults := c.resolve()
	if _, err := parseURL(c.URL); err != nil {
		faults = append(faults, fmt.Errorf("url: %w", err))
	}
	return errors.Join(faults...)
}

// resolve fills in defaults and finds the faults that need no parsing.
func (c Config) resolve() (Config, []error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	switch c.Protocol {
	case "":
		c.Protocol = "http1"
	case "http1":
	case "h2c":
		if strings.HasPrefix(strings.ToLower(c.URL), "https:") {
			fault("protocol: h2c is HTTP/2 without TLS, but url is https")
		}
	default:
		fault("protocol: %q is neither http1 nor h2c", c.Protocol)
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Timeout < 0 {
		fault("timeout: %v is not above 0", c.Timeout)
	}
	if c.Ready.Interval == 0 {
		c.Ready.Interval = time.Second
	}
	if c.Ready.Interval < 0 {
		fault("ready.interval: %v is not above 0", c.Ready.Interval)
	}
	if err := CheckPath(c.Ready.Path); c.Ready.Path != "" && err != nil {
		fault("ready.path: %q %w", c.Ready.Path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		// The value is secret: it is in no text.
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !validName(name):
			fault("headers: %q is not a header name", name)
		case !validValue(c.Headers[name]):
			fault("headers.%s: the value has characters that HTTP cannot carry", name)
		case canonical == "Host" && !validHost(c.Headers[name]):
			fault("headers.%s: the value is not a host", name)
		case !settable(canonical):
			fault("headers.%s: set by the sidecar itself", name)
		case canonical == "Authorization" && c.BearerToken != "":
			fault("headers.%s: bearer_token sets it too", name)
		case isSignature(canonical) && len(c.SigningSecret) > 0:
			fault("headers.%s: signing_secret sets it too", name)
		}
	}
	for i, secret := range c.SigningSecret {
		if err := CheckSigningSecret(secret); err != nil {
			fault("signing_secret[%d]: %w", i, err)
		}
	}
	if !validValue(c.BearerToken) {
		fault("bearer_token: has characters that HTTP cannot carry")
	}
	return c, faults
}

// validHost reports whether a value can be a Host header. net/http would send an empty one instead.
func validHost(value string) bool {
	for i := range len(value) {
		if c := value[i]; !token[c] && strings.IndexByte("(),;=:[]", c) < 0 || strings.IndexByte("#^`|", c) >= 0 {
			return false
		}
	}
	return value != ""
}

// settable reports whether app.headers may have a header: those that frame the request, and those that say what is delivered,
// are the sidecar's.
func settable(canonical string) bool {
	switch canonical {
	case "Host", "Authorization", "Cookie", "Accept-Encoding":
		return true
	}
	return !denied(canonical)
}

// address is an app's URL taken apart.
type address struct {
	url             *url.URL // without user and password
	user            *url.Userinfo
	network, socket string // of a unix socket
}

var errScheme = errors.New("neither http, https nor unix:///path")

func parseURL(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // without the URL, which may hold a password
		}
		return address{}, err
	}
	if u.Fragment != "" {
		return address{}, errors.New("has a fragment")
	}
	switch u.Scheme {
	case "unix":
		if u.Host != "" || u.Opaque != "" || u.Path == "" || u.Path == "/" {
			return address{}, errors.New("a unix socket is given as unix:///path")
		}
		return address{url: &url.URL{Scheme: "http", Host: "localhost"}, network: "unix", socket: u.Path}, nil
	case "http", "https":
		if u.Hostname() == "" {
			return address{}, errors.New("has no host")
		}
		a := address{user: u.User}
		u.User = nil
		a.url = u
		return a, nil
	default:
		return address{}, errScheme
	}
}

// hostPort is where to connect to, as net/http would work it out.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// fix works out the headers sent with every request.
func (c *Client) fix(cfg Config, user *url.Userinfo, agent string) {
	c.agent = "jetsidecar"
	if agent != "" && validValue(agent) {
		c.agent = agent
	}
	c.owned = map[string]bool{}
	set := func(canonical, value string) {
		key := canonical
		if key == "X-Idempotency-Key" {
			key = headerXIdempotencyKey
		}
		c.fixed = slices.DeleteFunc(c.fixed, func(f fixedHeader) bool { return f.name == key })
		c.fixed = append(c.fixed, fixedHeader{key, value})
		c.owned[canonical] = true
	}
	set("Accept-Encoding", "identity")
	if user != nil {
		password, _ := user.Password()
		set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Headers)) {
		if canonical := http.CanonicalHeaderKey(name); canonical == "Host" {
			c.host = cfg.Headers[name]
		} else {
			set(canonical, cfg.Headers[name])
		}
	}
	if cfg.BearerToken != "" {
		set("Authorization", "Bearer "+cfg.BearerToken)
	}
	var b headerBuilder
	for _, f := range c.fixed {
		b.line(f.name, f.value)
	}
	c.lines = b.buf
}
