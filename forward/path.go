package forward

import (
	"errors"
	"net/url"
	"strings"
)

// CheckPath says what is wrong with a path that is joined to the app's URL, in words that go on after its key.
func CheckPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return errors.New("must begin with /")
	case strings.HasPrefix(path, "//"):
		return errors.New("must not begin with //, after which a URL has a host")
	case strings.ContainsAny(path, "?#"):
		return errors.New("must not have a query or fragment")
	case strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return errors.New("holds blanks or control characters: escape them, as in %20")
	}
	if _, err := url.PathUnescape(path); err != nil {
		return errors.New("has a % that begins no escape: write it as %25")
	}
	return nil
}

// join is the base with a path appended. What is escaped in either stays escaped, and no more is unescaped than was.
func join(base *url.URL, path string) (*url.URL, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	first := base.RawPath
	if first == "" {
		first = base.EscapedPath()
	}
	u := *base
	u.RawPath = strings.TrimSuffix(escapePath(first), "/") + escapePath(path)
	var err error
	u.Path, err = url.PathUnescape(u.RawPath)
	return &u, err
}

// escapePath escapes the bytes that the path of a request cannot hold (RFC 3986, section 3.3, and brackets, which net/url takes too). net/url would give up the escapes
// that are there if it met one.
func escapePath(path string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(path) {
		c := path[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~!$&'()*+,;=:@/%[]", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}
