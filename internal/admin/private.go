package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
)

// private lets in who has the token. Without a token set: who asks on this machine, for a host name of this machine.
// (A web page elsewhere can have its own name resolve to 127.0.0.1; the browser then sends that name.)
func (s *Server) private(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.config.Token != "":
			if !hasToken(r, s.config.Token) {
				http.Error(w, "needs Authorization: Bearer with admin.token", http.StatusForbidden)
				return
			}
		case !s.loopback.Load():
			http.Error(w, "without admin.token this is off, unless admin.listen is a loopback address", http.StatusForbidden)
			return
		case !loopbackHost(r.Host):
			http.Error(w, "without admin.token only for the host localhost, 127.0.0.1 or [::1]", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hasToken compares in a time that tells nothing, not even the length.
func hasToken(r *http.Request, token string) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	a, b := sha256.Sum256([]byte(strings.TrimSpace(given))), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// loopbackHost reports whether a Host header names this machine.
func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// profiles are net/http/pprof's, without its registration with the default mux.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
