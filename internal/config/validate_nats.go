package config

import (
	"crypto/tls"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// nats checks how NATS is reached.
func (c *checker) nats() {
	n := c.l.NATS
	if len(n.URLs) == 0 {
		c.fault("nats.urls", "must name at least one server")
	}
	users, sockets := c.natsURLs(n.URLs)
	if sockets > 0 && sockets < len(n.URLs) {
		c.fault("nats.urls", "mixes websocket (ws, wss) and other servers; one connection can use only one kind")
	}
	c.natsAuth(users)
	if strings.ContainsFunc(strings.TrimSpace(n.Name), unicode.IsControl) {
		c.fault("nats.name", "must be one line without control characters")
	}
	if s := n.TLS.ServerName; s != "" && !validServerName(s) {
		c.fault("nats.tls.server_name", "is no name that a certificate can have: a host name, or an IP address, without a port")
	}

	c.contents("nats.creds_file", n.CredsFile, jetstream.CheckCreds)
	c.contents("nats.nkey_seed_file", n.NkeySeedFile, jetstream.CheckNkeySeed)
	c.contents("nats.tls.ca_file", n.TLS.CAFile, checkCAs)
	certThere := c.file("nats.tls.cert_file", n.TLS.CertFile)
	if keyThere := c.file("nats.tls.key_file", n.TLS.KeyFile); certThere && keyThere {
		if _, err := tls.LoadX509KeyPair(n.TLS.CertFile, n.TLS.KeyFile); err != nil {
			c.fault("nats.tls.cert_file", "is no pair with nats.tls.key_file: %v", err)
		}
	}
	if n.TLS.CertFile != "" && n.TLS.KeyFile == "" {
		c.fault("nats.tls.cert_file", "is given without nats.tls.key_file")
	}
	if n.TLS.KeyFile != "" && n.TLS.CertFile == "" {
		c.fault("nats.tls.key_file", "is given without nats.tls.cert_file")
	}
	if n.Domain != "" && n.APIPrefix != "" {
		c.fault("nats.api_prefix", "is given together with nats.domain; the domain is a prefix too: give one")
	}
	if n.Domain != "" && !validToken(n.Domain) {
		c.fault("nats.domain", "must be one subject token: no dots, blanks or wildcards")
	}
	if p := strings.TrimSuffix(n.APIPrefix, "."); p != "" && (subjectFault(p) != "" || strings.ContainsAny(p, "*>")) {
		c.fault("nats.api_prefix", "must be a subject without wildcards")
	}
}

// natsURLs checks the server list and counts the servers with a user and those that are websockets.
func (c *checker) natsURLs(urls []string) (users, sockets int) {
	for i, s := range urls {
		at := "[" + strconv.Itoa(i) + "]"
		shown := quote(redactURL(s))
		u, err := url.Parse(s)
		if err == nil && u.User != nil {
			users++
		}
		switch {
		case err != nil && !strings.Contains(s, "://"):
			c.item("nats.urls", at, shown, "has no scheme: write nats://host:4222")
			continue
		case err != nil:
			c.item("nats.urls", at, shown, "is not a URL (special characters in user and password must be %%-escaped)")
			continue
		case u.Scheme == "ws" || u.Scheme == "wss":
			sockets++
		case u.Host == "" && !strings.Contains(s, "://"):
			c.item("nats.urls", at, shown, "has no scheme: write nats://host:4222")
			continue
		case u.Scheme != "nats" && u.Scheme != "tls":
			c.item("nats.urls", at, shown, "has an unknown scheme: write nats, tls, ws or wss")
			continue
		}
		if u.Hostname() == "" {
			c.item("nats.urls", at, shown, "has no host")
		} else if p := u.Port(); p != "" && !validPort(p) {
			c.item("nats.urls", at, shown, "has a port that is not 1 to 65535")
		}
	}
	return users, sockets
}

// natsAuth checks that at most one method of authentication is given.
func (c *checker) natsAuth(usersInURLs int) {
	n := c.l.NATS
	var methods []string
	add := func(given bool, name, key string) {
		if given && len(methods) > 0 {
			c.fault(key, "is another method of authentication beside %s: give one", strings.Join(methods, ", "))
		}
		if given {
			methods = append(methods, name)
		}
	}
	add(usersInURLs > 0, "a user in nats.urls", "nats.urls")
	add(n.User != "", "nats.user", "nats.user")
	add(n.Token != "", "nats.token", "nats.token")
	add(n.CredsFile != "", "nats.creds_file", "nats.creds_file")
	add(n.NkeySeedFile != "", "nats.nkey_seed_file", "nats.nkey_seed_file")
	if n.Password != "" && n.User == "" {
		c.fault("nats.password", "is given without nats.user")
	}
}

// validServerName reports whether a certificate can be for that name, which need be no host's. One with a port is meant for nats.urls.
func validServerName(s string) bool {
	if _, port, err := net.SplitHostPort(s); err == nil && validPort(port) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

func validPort(s string) bool {
	p, err := strconv.Atoi(s)
	return err == nil && p >= 1 && p <= 65535
}
