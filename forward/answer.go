package forward

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

const (
	keptBytes   = 1 << 10  // of the response body and of Sidecar-Reason
	readBytes   = 1 << 20  // of the response body, before the connection is given up instead
	headerBytes = 64 << 10 // of the response header
)

// read reads the whole answer, and closes it.
func (x *exchange) read(resp *http.Response) error {
	defer resp.Body.Close()
	start, err := drain(resp.Body, resp.ContentLength) // none after a 101: its length is 0
	if err != nil {
		return err
	}
	x.result.Outcome = x.client.outcome(resp, start)
	return nil
}

// drain reads a body to its end, so that the connection can be used again, and returns its start. A body larger than
// readBytes is not read to its end: its connection ends with it.
func drain(body io.Reader, length int64) ([]byte, error) {
	if length == 0 || body == http.NoBody {
		return nil, nil
	}
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	buf := *pooled

	var start []byte
	for total := 0; total < readBytes; {
		n, err := body.Read(buf)
		if room := keptBytes - len(start); room > 0 && n > 0 {
			start = append(start, buf[:min(n, room)]...)
		}
		total += n
		if err == io.EOF {
			return start, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return start, nil
}

// outcome is what an answer says.
func (c *Client) outcome(resp *http.Response, start []byte) policy.Outcome {
	o := policy.Outcome{Kind: policy.Answered, Status: resp.StatusCode, Response: start}
	if value := resp.Header.Get("Sidecar-Action"); value != "" {
		action, ok := policy.ParseAction(value)
		if !ok {
			c.warnAction(value)
		}
		o.Action = action
	}
	if reason := resp.Header.Get("Sidecar-Reason"); reason != "" {
		o.Reason = strings.Clone(reason[:min(len(reason), keptBytes)])
	}
	if value := resp.Header.Get("Retry-After"); value != "" {
		o.RetryAfter = policy.ParseRetryAfter(value, time.Now())
	}
	return o
}

// warnAction logs a Sidecar-Action that makes no sense, at most once in a while: an app that gets it wrong does so in
// every answer.
func (c *Client) warnAction(value string) {
	const every = int64(10 * time.Second)
	now, last := int64(time.Since(c.born)), c.warned.Load()
	if last != 0 && now-last < every || !c.warned.CompareAndSwap(last, max(now, 1)) {
		return
	}
	c.log.Warn("app answered with an unknown sidecar-action, ignored", "value", value[:min(len(value), 100)])
}

// oneLine is an error's text on one line.
func oneLine(err error) string {
	text := err.Error()
	if !validValue(text) {
		text = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, text)
	}
	return text
}
