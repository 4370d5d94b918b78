package forward

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

var (
	errNoReply    = errors.New("connection was closed without an answer")
	errReplyLarge = fmt.Errorf("header of the answer is larger than %d bytes", headerBytes)
)

// receive reads the answer.
func (l *link) receive(req *http.Request) (r reply, start []byte, keep bool, err error) {
	if _, err := l.r.Peek(1); err != nil {
		if err == io.EOF {
			err = errNoReply
		}
		return r, nil, false, err
	}
	buffered, _ := l.r.Peek(l.r.Buffered())
	r, size := plainReply(buffered)
	if size == 0 || req.Method == http.MethodHead {
		return l.receiveOther(req)
	}
	_, _ = l.r.Discard(size)
	start, whole, err := l.body(r.length)
	return r, start, whole, err
}

// body reads a body of a known length.
func (l *link) body(length int64) (start []byte, whole bool, err error) {
	if length == 0 {
		return nil, true, nil
	}
	if length <= int64(l.r.Buffered()) {
		all, _ := l.r.Peek(int(length))
		start = append(start, all[:min(len(all), l.keeps)]...)
		_, _ = l.r.Discard(int(length))
		return start, true, nil
	}
	l.limit = math.MaxInt64
	body := io.LimitedReader{R: l.r, N: length}
	start, whole, err = drain(&body, l.keeps)
	if whole && body.N > 0 {
		return nil, false, io.ErrUnexpectedEOF
	}
	return start, whole || body.N == 0, err
}

// receiveOther reads an answer of any kind, by net/http.
func (l *link) receiveOther(req *http.Request) (r reply, start []byte, keep bool, err error) {
	var resp *http.Response
	for {
		resp, err = http.ReadResponse(l.r, req)
		if err != nil && l.limit <= 0 {
			err = errReplyLarge
		}
		if err != nil {
			return r, nil, false, err
		}
		if resp.StatusCode < 100 || resp.StatusCode > 199 || resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	l.limit = math.MaxInt64
	r, keep = replyOf(resp), true // and its body needs no closing: that would read it to its end
	if resp.ContentLength != 0 && req.Method != http.MethodHead {
		start, keep, err = drain(resp.Body, l.keeps)
	}
	return r, start, keep && !r.closing, err
}

// Read reads from the connection, within the limit. It is for r.
func (l *link) Read(p []byte) (int, error) {
	if l.limit <= 0 {
		return 0, errReplyLarge
	}
	p = p[:min(int64(len(p)), l.limit)]
	n, err := l.nc.Read(p)
	for err != nil && l.extend(err) {
		n, err = l.nc.Read(p)
	}
	l.limit -= int64(n)
	return n, err
}

// replyOf is what net/http read.
func replyOf(resp *http.Response) reply {
	return reply{
		status:  resp.StatusCode,
		length:  resp.ContentLength,
		action:  strings.Join(resp.Header.Values("Sidecar-Action"), ","),
		reason:  strings.Join(filled(resp.Header.Values("Sidecar-Reason")), ", "),
		later:   longest(resp.Header.Values("Retry-After")),
		coding:  strings.Join(filled(resp.Header.Values("Content-Encoding")), ", "),
		closing: resp.Close || resp.StatusCode < http.StatusOK,
	}
}

// filled are the values that are not empty.
func filled(values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
}

// longest is the Retry-After that asks for the longest delay; empty if there is none, or nothing but nonsense.
func longest(values []string) (later string) {
	now, most := time.Now(), time.Duration(0)
	for _, v := range values {
		if d, ok := policy.ParseRetryAfter(v, now); ok && (later == "" || d > most) {
			later, most = v, d
		}
	}
	return later
}

// drain reads a body to its end, so that the connection can be used again, and returns its start, so many bytes at most. A body
// larger than readBytes is not read to its end: then whole is false, and its connection ends with it.
func drain(body io.Reader, keep int) (start []byte, whole bool, err error) {
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	buf := *pooled
	for total := 0; total < readBytes; {
		n, err := body.Read(buf)
		if room := keep - len(start); room > 0 && n > 0 {
			start = append(start, buf[:min(n, room)]...)
		}
		total += n
		if err == io.EOF {
			return start, true, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	return start, false, nil
}
