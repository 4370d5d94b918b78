package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// asked asks a server as if it listened on a loopback address, or on another one.
func asked(token string, loopback bool, path, host string, header map[string]string) *httptest.ResponseRecorder {
	o := options()
	o.Config = config.Admin{Token: token}
	s := New(o)
	s.loopback.Store(loopback)
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = host
	for name, value := range header {
		r.Header.Set(name, value)
	}
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, r)
	return rec
}

func TestWhoMayUseTheAPI(t *testing.T) {
	bearer := map[string]string{"Authorization": "Bearer secret"}
	with := func(base map[string]string, name, value string) map[string]string {
		all := map[string]string{name: value}
		for n, v := range base {
			all[n] = v
		}
		return all
	}
	for _, c := range []struct {
		name     string
		token    string
		loopback bool
		host     string
		header   map[string]string
		status   int
	}{
		{"a program", "", true, "127.0.0.1:9090", nil, 200},
		{"a forwarded port", "", true, "localhost:8000", nil, 200},
		{"ipv6", "", true, "[::1]:9090", nil, 200},
		{"the page", "", true, "127.0.0.1:9090", map[string]string{"Origin": "http://127.0.0.1:9090", "Sec-Fetch-Site": "same-origin"}, 200},
		{"the page, as old browsers ask", "", true, "127.0.0.1:9090", map[string]string{"Origin": "http://127.0.0.1:9090"}, 200},
		{"an address that was typed", "", true, "127.0.0.1:9090", map[string]string{"Sec-Fetch-Site": "none"}, 200},
		{"a rebound name", "", true, "evil.example:9090", nil, 403},
		{"a rebound name of the same origin", "", true, "evil.example:9090", map[string]string{"Origin": "http://evil.example:9090", "Sec-Fetch-Site": "same-origin"}, 403},
		{"an address of others", "", true, "10.0.0.1:9090", nil, 403},
		{"no host", "", true, "", nil, 403},
		{"another origin", "", true, "127.0.0.1:9090", map[string]string{"Origin": "https://evil.example"}, 403},
		{"another port", "", true, "localhost:9090", map[string]string{"Origin": "http://localhost:3000"}, 403},
		{"another name of this machine", "", true, "localhost:9090", map[string]string{"Origin": "http://127.0.0.1:9090"}, 403},
		{"an origin without a name", "", true, "127.0.0.1:9090", map[string]string{"Origin": "null"}, 403},
		{"no origin at all", "", true, "127.0.0.1:9090", map[string]string{"Origin": ""}, 403},
		{"cross-site", "", true, "127.0.0.1:9090", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"same-site", "", true, "127.0.0.1:9090", map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{"what is not known", "", true, "127.0.0.1:9090", map[string]string{"Sec-Fetch-Site": "friendly"}, 403},
		{"a link to it", "", true, "127.0.0.1:9090", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403},
		{"a listener for others", "", false, "127.0.0.1:9090", nil, 403},

		{"a token, on loopback", "secret", true, "127.0.0.1:9090", bearer, 200},
		{"a token, and a rebound name", "secret", true, "evil.example:9090", bearer, 403},
		{"a token, and another origin", "secret", true, "127.0.0.1:9090", with(bearer, "Origin", "https://evil.example"), 403},
		{"a token, elsewhere", "secret", false, "sidecar.example:9090", bearer, 200},
		{"a token, elsewhere, the page", "secret", false, "sidecar.example", with(bearer, "Origin", "https://sidecar.example"), 200},
		{"a token, elsewhere, with a usual port", "secret", false, "sidecar.example:443", with(bearer, "Origin", "https://SIDECAR.example"), 200},
		{"a token, elsewhere, another origin", "secret", false, "sidecar.example", with(bearer, "Origin", "https://evil.example"), 403},
		{"a token, elsewhere, cross-site", "secret", false, "sidecar.example", with(bearer, "Sec-Fetch-Site", "cross-site"), 403},
		{"no token", "secret", true, "127.0.0.1:9090", nil, 401},
		{"no token, elsewhere", "secret", false, "sidecar.example", nil, 401},
		{"a wrong token", "secret", true, "127.0.0.1:9090", map[string]string{"Authorization": "Bearer Secret"}, 401},
		{"the token in the address", "secret", true, "127.0.0.1:9090", map[string]string{"Authorization": "secret"}, 401},
		{"no token, another origin", "secret", true, "127.0.0.1:9090", map[string]string{"Origin": "https://evil.example"}, 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, path := range []string{"/api/consumers", "/api/nothing"} {
				rec := asked(c.token, c.loopback, path, c.host, c.header)
				status := c.status
				if status == 200 && path == "/api/nothing" {
					status = 404
				}
				if rec.Code != status {
					t.Errorf("%s: %d, want %d: %s", path, rec.Code, status, rec.Body)
				}
				var f fault
				if rec.Code != 200 && (json.Unmarshal(rec.Body.Bytes(), &f) != nil || f.Error == "") {
					t.Errorf("%s: no reason in %s", path, rec.Body)
				}
				if (rec.Code == 401) != (rec.Header().Get("WWW-Authenticate") == "Bearer") {
					t.Errorf("%s: WWW-Authenticate %q with %d", path, rec.Header().Get("WWW-Authenticate"), rec.Code)
				}
			}
			for _, path := range []string{"/livez", "/readyz", "/metrics"} { // open to everyone
				if rec := asked(c.token, c.loopback, path, c.host, c.header); rec.Code != 200 {
					t.Errorf("%s: %d", path, rec.Code)
				}
			}
		})
	}
}

// The page holds no message: it needs no token, as it asks for it. A link on another site may lead to it.
func TestWhoSeesThePage(t *testing.T) {
	link := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
	frame := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
	for _, c := range []struct {
		name     string
		token    string
		loopback bool
		host     string
		header   map[string]string
		page     int
		asset    int
	}{
		{"on this machine", "", true, "localhost:9090", nil, 200, 200},
		{"a rebound name", "", true, "evil.example", nil, 403, 403},
		{"no token, elsewhere", "", false, "sidecar.example", nil, 403, 403},
		{"a token, elsewhere", "secret", false, "sidecar.example", nil, 200, 200},
		{"a link", "", true, "localhost:9090", link, 200, 403},
		{"a frame", "", true, "localhost:9090", frame, 403, 403},
		{"another origin", "", true, "localhost:9090", map[string]string{"Origin": "https://evil.example"}, 403, 403},
		{"a script of another site", "", true, "localhost:9090", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403, 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := asked(c.token, c.loopback, "/", c.host, c.header)
			if rec.Code != c.page {
				t.Errorf("/: %d, want %d", rec.Code, c.page)
			}
			if c.page == 200 {
				strict(t, rec.Header())
			} else if !strings.Contains(rec.Body.String(), "not for this request: ") || !strings.Contains(rec.Body.String(), "/livez") {
				t.Errorf("it does not say why: %s", rec.Body)
			}
			for _, path := range []string{"/assets/app.js", "/assets/style.css"} {
				if rec := asked(c.token, c.loopback, path, c.host, c.header); rec.Code != c.asset {
					t.Errorf("%s: %d, want %d", path, rec.Code, c.asset)
				}
			}
		})
	}
	for _, path := range []string{"/assets/", "/assets/index.html", "/assets/nothing.js", "/assets/..%2fadmin.go", "/assets/../admin.go", "/page/app.js"} {
		if rec := asked("", true, path, "localhost", nil); rec.Code == 200 {
			t.Errorf("%s is served", path)
		}
	}
}

func strict(t *testing.T, h http.Header) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
			"frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "no-referrer",
		"Cache-Control":                "no-store",
		"X-Frame-Options":              "DENY",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
