package forward

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzPath holds that what CheckPath takes makes a request, whose path says the same with each escape as it was given.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"/", "//x", "/a%2Fb/ü", "/%zz", "/a?b", "/[x]", "/\xff", "/a\x80%41", "x", ""} {
		f.Add(path)
	}
	client := newClient(f, nil, func(s *setup) { s.config.URL = "http://app/bä%2Fse" })
	f.Fuzz(func(t *testing.T, path string) {
		target, err := client.Target(http.MethodPost, path)
		if faulty := CheckPath(path) != nil; faulty != (err != nil) {
			t.Fatalf("%q: %v, and as a target %v", path, CheckPath(path), err)
		}
		if err != nil {
			return
		}
		sent := target.url.RequestURI()
		if want, _ := url.PathUnescape("/bä%2Fse" + path); target.url.Path != want {
			t.Errorf("%q is sent as %q", path, sent)
		}
		for i := range len(path) {
			if path[i] == '%' && !strings.Contains(sent, path[i:i+3]) {
				t.Errorf("%q is sent as %q", path, sent)
			}
		}
	})
}
