package forward

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jetsidecar/jetsidecar/policy"
)

const (
	keptBytes   = 1 << 10  // of the response body, unless it has the results of a batch, and of Sidecar-Reason
	readBytes   = 1 << 20  // of the response body, before the connection is given up instead
	headerBytes = 64 << 10 // of the response header
)

// read reads the whole answer, and closes it.
func (x *exchange) read(resp *http.Response) error {
	defer resp.Body.Close()
	var start []byte
	if resp.ContentLength != 0 && resp.StatusCode != http.StatusSwitchingProtocols {
		var err error
		if start, _, err = drain(resp.Body, x.keeps); err != nil {
			return err
		}
	}
	x.result.Outcome = x.outcome(replyOf(resp), start)
	return nil
}

// outcome is what an answer says.
func (x *exchange) outcome(r reply, start []byte) policy.Outcome {
	x.result.coding = r.coding
	o := policy.Outcome{Kind: policy.Answered, Status: r.status, Response: start}
	if r.action != "" {
		o.Action = x.action(r.action)
	}
	if r.reason != "" {
		o.Reason = strings.Clone(r.reason[:min(len(r.reason), keptBytes)])
	}
	if r.later != "" {
		o.RetryAfter, o.Later = policy.ParseRetryAfter(r.later, time.Now())
	}
	return o
}

// action is the most careful of the actions that an answer names, separated by commas; 0 if it names none.
func (x *exchange) action(values string) (most policy.Verdict) {
	for value := range strings.SplitSeq(values, ",") {
		value = strings.TrimSpace(value)
		action, ok := policy.ParseAction(value)
		switch {
		case !ok && value != "":
			x.warnAction(value)
		case ok && (most == 0 || careful(action) > careful(most)):
			most = action
		}
	}
	return most
}

// warnAction logs a Sidecar-Action that makes no sense, at most once in a while: an app that gets it wrong does so in
// every answer.
func (x *exchange) warnAction(value string) {
	if x.client.mayWarn(&x.warned.action) {
		x.client.log.Warn("app answered with an unknown sidecar-action, ignored", "stream", x.stream, "consumer", x.consumer, "value", value[:min(len(value), 100)])
	}
}

// mayWarn reports whether it is time for another warning of a kind, and counts it as logged then.
func (c *Client) mayWarn(kind *atomic.Int64) bool {
	const every = int64(30 * time.Second)
	now, last := int64(time.Since(c.born)), kind.Load()
	return (last == 0 || now-last >= every) && kind.CompareAndSwap(last, max(now, 1))
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
