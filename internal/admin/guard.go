package admin

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Why a request is refused.
const (
	needsToken  = "needs Authorization: Bearer with admin.token"
	isOff       = "without admin.token this is off, unless admin.listen is a loopback address"
	foreignHost = "the Host is foreign: this listener is for localhost, 127.0.0.1 and [::1] only"
	foreignSite = "the request comes from a page of another origin"
)

// guard is who may use what shows or changes messages. It returns the status and the reason of a refusal; 0 lets in.
//
// Without a token only a loopback listener serves at all. Whoever can have a browser on this machine send a request then is kept
// out by two looks: at Host, since a page elsewhere can have its own name resolve to 127.0.0.1 and the browser then sends that
// name; and at what the browser says of the page that asks (sameOrigin). A loopback listener takes only hosts that name this
// machine, with any port, as it may be forwarded. Any other listener is reached by names the sidecar cannot know: there a page
// that has its name resolve here gains nothing, because the token is nothing that a browser sends by itself.
func (s *Server) guard(r *http.Request, token bool) (status int, why string) {
	local := s.loopback.Load()
	switch {
	case s.config.Token == "" && !local:
		return http.StatusForbidden, isOff
	case local && !loopbackHost(r.Host):
		return http.StatusForbidden, foreignHost
	case !sameOrigin(r):
		return http.StatusForbidden, foreignSite
	case token && s.config.Token != "" && !hasToken(r, s.config.Token):
		return http.StatusUnauthorized, needsToken
	}
	return 0, ""
}

// sameOrigin reports whether no page of another origin sent a request: what browsers say in Sec-Fetch-Site and Origin, and
// pages cannot change. Programs send neither.
func sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none": // none: typed, or a bookmark
	default:
		return false
	}
	given := r.Header.Values("Origin")
	if len(given) == 0 {
		return true
	}
	origin, err := url.Parse(given[0])
	return err == nil && len(given) == 1 && origin.Host != "" && sameHost(origin.Host, r.Host)
}

// sameHost compares hosts with ports. Browsers leave out the port that is usual for the scheme, which may be https before a proxy.
func sameHost(a, b string) bool {
	usual := func(host string) string {
		if name, port, err := net.SplitHostPort(host); err == nil && (port == "80" || port == "443") {
			return name
		}
		return host
	}
	return strings.EqualFold(usual(a), usual(b))
}

// navigation reports whether a browser asks for a whole page because somebody followed a link, which may be on any site. The
// page holds no message, so it may be shown; in a frame it is not.
func navigation(r *http.Request) bool {
	h := r.Header
	return r.Method == http.MethodGet && h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document" && h.Get("Origin") == ""
}
