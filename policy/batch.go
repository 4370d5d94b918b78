package policy

import "net/http"

// Divides reports whether an outcome that several messages share may be one message's doing: then they are tried again in smaller
// requests, before anything is decided over one of them. An answer that speaks of the app as a whole does not divide them (its
// status, or a Retry-After with one that means retry), nor does a request without an answer: they are retried, all of them.
func (p *Policy) Divides(o Outcome) bool {
	switch p.verdict(o) {
	case DLQ, Drop:
		return true
	case Retry:
		return o.Kind == Answered && o.Action == 0 && !o.Later && !ofTheApp(o.Status)
	default:
		return false
	}
}

// Means is the verdict that an outcome alone means, before any limit.
func (p *Policy) Means(o Outcome) Verdict { return p.verdict(o) }

// ofTheApp reports whether a status is about the app, or the way to it, and not about what was sent.
func ofTheApp(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusNetworkAuthenticationRequired:
		return true
	}
	return status/100 == 1 || status/100 == 3
}
