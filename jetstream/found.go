package jetstream

import (
	"crypto/tls"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// mostFound bounds how many servers are handed on from one client to the next.
const mostFound = 100

// found are the servers that a client was told of by others, which the next one is to know: those that are configured may be away by then.
type found struct {
	urls  []string
	hosts []string // with ports
	name  string   // for whom their certificates are; empty: each its own
}

// foundIn looks which servers of a client's pool there are besides those that are configured. To the library they are as good as configured in the next client.
// Servers with TLS that are told of by address alone have the name of the one that was connected to (nats.go, processInfo). Here that can be said only
// of all: where it is not that of all that are configured, those by address are left out.
func foundIn(pool []nats.Server, cfg Config) found {
	configured := configuredHosts(cfg.URLs)
	var f found
	var unnamed, named bool
	for _, s := range pool {
		if slices.Contains(configured, s.URL.Host) || len(f.urls) == mostFound {
			continue
		}
		f.urls, f.hosts = append(f.urls, s.URL.String()), append(f.hosts, s.URL.Host)
		if isAddress(s.URL.Host) {
			unnamed = true
		} else {
			named = true
		}
	}
	secure := slices.ContainsFunc(f.urls, func(u string) bool { return strings.HasPrefix(u, "tls:") || strings.HasPrefix(u, "wss:") })
	var names []string // that are configured
	for _, host := range configured {
		if name, _, _ := net.SplitHostPort(host); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch {
	case !secure, !unnamed, cfg.TLS.ServerName != "", !slices.ContainsFunc(configured, func(host string) bool { return !isAddress(host) }):
	case len(names) == 1 && !named:
		f.name = names[0]
	default:
		f.urls = slices.DeleteFunc(f.urls, func(s string) bool { u, err := url.Parse(s); return err != nil || isAddress(u.Host) })
		f.hosts = slices.DeleteFunc(f.hosts, isAddress)
	}
	return f
}

// options are those of a client that is to know them.
func (f found) options() []nats.Option {
	if f.name == "" {
		return nil
	}
	return []nats.Option{func(o *nats.Options) error {
		conf := &tls.Config{MinVersion: tls.VersionTLS12}
		if o.TLSConfig != nil {
			conf = o.TLSConfig.Clone()
		}
		conf.ServerName = f.name
		o.TLSConfig = conf
		return nil
	}}
}

// current are the servers of a client's pool that may be tried: those that were found are left out once a server that it connected to told of others.
func (f found) current(pool []nats.Server, info nats.ServerInfo) []nats.Server {
	if len(info.ConnectURLs) == 0 {
		return pool
	}
	return slices.DeleteFunc(pool, func(s nats.Server) bool {
		return slices.Contains(f.hosts, s.URL.Host) && !slices.Contains(info.ConnectURLs, s.URL.Host)
	})
}

// configuredHosts are those of URLs, each with the port that the library takes (nats.go, parseServerURL).
func configuredHosts(urls []string) []string {
	var hosts []string
	for _, s := range urls {
		if !strings.Contains(s, "://") {
			s = "nats://" + s
		}
		u, err := url.Parse(strings.TrimSpace(s))
		if err != nil {
			continue // the library says so
		}
		port := map[string]string{"ws": "80", "wss": "443"}[u.Scheme]
		if port == "" {
			port = "4222"
		}
		if u.Port() == "" {
			u.Host = strings.TrimSuffix(u.Host, ":") + ":" + port
		}
		hosts = append(hosts, u.Host)
	}
	return hosts
}

// isAddress reports whether a host, with its port, is an IP address.
func isAddress(host string) bool {
	name, _, err := net.SplitHostPort(host)
	return err == nil && net.ParseIP(name) != nil
}
