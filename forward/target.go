package forward

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
)

// Target is where one consumer's messages go: a method and a URL, worked out once.
type Target struct {
	method string
	url    *url.URL
	head   []byte // its request line and Host, as net/http writes them
	batch  bool   // its requests are batches
	format Format
	warned *warned
}

// warned is when a warning of each kind about the answers of one consumer's app was logged last, since the client was made.
type warned struct{ action, results, unclear atomic.Int64 }

// Target makes the target of a method and a path, which is joined to the app's URL: see CheckPath.
func (c *Client) Target(method, path string) (*Target, error) {
	if !validName(method) || method == http.MethodConnect {
		return nil, fmt.Errorf("method: %q is not a method that can carry a message", method)
	}
	u, err := join(c.base, path)
	if err != nil {
		return nil, fmt.Errorf("path: %q %w", path, err)
	}
	t := &Target{method: method, url: u, warned: new(warned)}
	// Written once: net/http rejects here what it would reject in every request.
	var probe bytes.Buffer
	if err := c.request(t, http.Header{}).Write(&probe); err != nil {
		return nil, fmt.Errorf("path: %q: %w", path, err)
	}
	for range 2 {
		line, err := probe.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("path: %q: %w", path, err)
		}
		t.head = append(t.head, line...)
	}
	return t, nil
}

// write appends the head of a message's request, and its body if that is small. It returns how many header lines were left
// out.
func (c *Client) write(dst []byte, t *Target, m *Message) ([]byte, int) {
	dst = append(dst, t.head...)
	if c.signer != nil {
		dst = c.signer.reserve(dst, m)
	}
	dst, dropped := c.fields(dst, m)
	if len(m.Body) > 0 || hasBody(t.method) {
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, int64(len(m.Body)), 10)
		dst = append(dst, "\r\n"...)
	}
	dst = append(dst, "\r\n"...)
	if len(m.Body) <= inlineBytes {
		dst = append(dst, m.Body...)
	}
	return dst, dropped
}

// hasBody reports whether a request by a method tells its length even if it is 0.
func hasBody(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// request is a request to the target, without a body.
func (c *Client) request(t *Target, header http.Header) *http.Request {
	return &http.Request{
		Method:     t.method,
		URL:        t.url,
		Host:       c.host,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     header,
	}
}

func ascii(text string) bool {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return false
		}
	}
	return true
}
