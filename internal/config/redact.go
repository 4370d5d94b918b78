package config

import (
	"net"
	"net/url"
	"regexp"
	"strings"
)

// redacted stands for a secret in everything that is printed.
const redacted = "[redacted]"

// longestShown bounds how much of a value is shown.
const longestShown = 200

var (
	credentials = regexp.MustCompile(`(?s)^([A-Za-z][A-Za-z0-9+.-]*://)?.*@`)
	urlScheme   = regexp.MustCompile(`(?s)^([A-Za-z][A-Za-z0-9+.-]*://)?.*$`)
)

// redactURL hides user and password of a URL, also of one that cannot be parsed: up to the last @, or, without
// one, all that could be a password.
func redactURL(s string) string {
	if strings.Contains(s, "@") {
		return credentials.ReplaceAllString(s, "${1}"+redacted+"@")
	}
	u, err := url.Parse(s)
	if host, _, e := net.SplitHostPort(s); e == nil && (net.ParseIP(host) != nil || host == "localhost") {
		return s
	}
	if err != nil || u.Opaque != "" {
		return urlScheme.ReplaceAllString(s, "${1}"+redacted)
	}
	return s
}

// shown is a scalar as messages and listings show it.
func (f field) shown(s string) string {
	switch {
	case s == "":
		return ""
	case f.opaque() || f.secret == "value":
		return redacted
	case f.secret == "url" || strings.Contains(s, "://"):
		s = redactURL(s)
	}
	return s
}

// shownNode is a node's value for a message, or empty where it could hold a secret of some other key.
func (f field) shownNode(n *node) string {
	switch {
	case n.shape == scalar && (f.kind == section || f.kind == sections || f.kind == dict):
		return ""
	case n.shape != scalar:
		return ""
	}
	s := f.shown(n.text)
	if len(s) > longestShown {
		s = strings.ToValidUTF8(s[:longestShown], "") + "..."
	}
	if n.tag == tagText || n.tag == tagEnv {
		return quote(s)
	}
	return s
}
