package policy

import (
	"net/http"
	"time"
)

// Policy is one consumer's rules. The zero Policy has no limits and the default statuses; its delays need a RetryConfig.
type Policy struct {
	MaxDeliver int           // attempts, the first counted; 0 = no limit
	MaxAge     time.Duration // older than this when it would be retried: dead-lettered; 0 = no limit
	Retry      RetryConfig
	Status     *StatusTable // nil = the defaults
}

// Decide says what becomes of a message after an attempt. The Decision's Verdict is zero only for HandedBack.
func (p *Policy) Decide(o Outcome, a Attempt) Decision {
	switch v := p.verdict(o); v {
	case Retry:
		return p.retry(o, a)
	case DLQ:
		if o.Kind == Undeliverable {
			return Decision{Verdict: DLQ, Reason: ReasonUndeliverable}
		}
		return Decision{Verdict: DLQ, Reason: ReasonRejected}
	default:
		return Decision{Verdict: v}
	}
}

// verdict is what the outcome alone means, before any limit.
func (p *Policy) verdict(o Outcome) Verdict {
	switch o.Kind {
	case HandedBack:
		return 0
	case Undeliverable:
		return DLQ
	case Answered:
		if o.Action >= Ack && o.Action <= Drop {
			return o.Action
		}
		return p.Status.Lookup(o.Status)
	default:
		return Retry
	}
}

// retry delivers again unless the message is at a limit.
func (p *Policy) retry(o Outcome, a Attempt) Decision {
	switch {
	case p.MaxDeliver > 0 && a.Number >= uint64(p.MaxDeliver):
		return Decision{Verdict: DLQ, Reason: ReasonMaxDeliver}
	case p.MaxAge > 0 && a.Age > p.MaxAge:
		return Decision{Verdict: DLQ, Reason: ReasonMaxAge}
	}
	delay := p.Retry.Delay(a.Number, a.Random)
	return Decision{Verdict: Retry, Delay: max(delay, min(o.RetryAfter, p.Retry.RetryAfterMax))}
}

// Overloaded reports whether an outcome says that the app cannot take so much now, rather than anything about the message: 429, 502, 503
// or 504 where that means retry, or no answer.
func (p *Policy) Overloaded(o Outcome) bool {
	switch {
	case p.verdict(o) != Retry:
		return false
	case o.Kind == NoAnswer:
		return true
	}
	switch o.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
