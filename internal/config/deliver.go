package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// InFlight is how many requests may be in flight: order: stream implies one.
func (c Consumer) InFlight() int {
	if c.Order == "stream" {
		return 1
	}
	return c.Concurrency
}

// Leases is how many messages may be leased: those of the requests in flight, and prefetch.
func (c Consumer) Leases() int { return c.InFlight()*max(c.Batch.MaxMessages, 1) + c.Prefetch }

// DeliverKind is where a durable begins.
type DeliverKind int

// The kinds of a deliver policy.
const (
	DeliverAll DeliverKind = iota
	DeliverNew
	DeliverLast
	DeliverLastPerSubject
	DeliverFromTime
	DeliverFromSequence
)

// DeliverPolicy is a parsed deliver policy.
type DeliverPolicy struct {
	Kind DeliverKind
	Seq  uint64    // stream sequence, from 1, of DeliverFromSequence
	Time time.Time // of DeliverFromTime
}

var errDeliverPolicy = errors.New("must be all, new, last, last_per_subject, an RFC 3339 time or a stream sequence from 1")

// The times from which a durable can begin: the server counts nanoseconds since 1970 in 64 bits, and a time beyond that would be
// another one.
var (
	firstStart = time.Unix(0, 0)
	lastStart  = time.Unix(0, math.MaxInt64)
)

var errStartTime = errors.New("must be a time from 1970-01-01 to 2262-04-11, which is as far as the server's clock goes")

// ParseDeliverPolicy parses all, new, last, last_per_subject, an RFC 3339 time or a stream sequence.
func ParseDeliverPolicy(s string) (DeliverPolicy, error) {
	switch s {
	case "all":
		return DeliverPolicy{Kind: DeliverAll}, nil
	case "new":
		return DeliverPolicy{Kind: DeliverNew}, nil
	case "last":
		return DeliverPolicy{Kind: DeliverLast}, nil
	case "last_per_subject":
		return DeliverPolicy{Kind: DeliverLastPerSubject}, nil
	}
	if seq, err := strconv.ParseUint(s, 10, 64); err == nil && seq > 0 && s[0] != '0' {
		return DeliverPolicy{Kind: DeliverFromSequence, Seq: seq}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		if t.Before(firstStart) || t.After(lastStart) {
			return DeliverPolicy{}, errStartTime
		}
		return DeliverPolicy{Kind: DeliverFromTime, Time: t}, nil
	}
	return DeliverPolicy{}, errDeliverPolicy
}

// Deliver is the consumer's parsed deliver policy. The configuration must be valid.
func (c Consumer) Deliver() DeliverPolicy {
	p, _ := ParseDeliverPolicy(c.DeliverPolicy)
	return p
}

// DLQStream is the name of the consumer's DLQ stream.
func (c Consumer) DLQStream() string {
	return c.substitute(c.DLQ.Stream, "{consumer}", c.Durable)
}

// DLQSubjects is the subject pattern of the consumer's DLQ stream: {consumer} stands for any, {subject} for the rest.
func (c Consumer) DLQSubjects() string {
	return c.substitute(c.DLQ.Subject, "{consumer}", "*", "{subject}", ">")
}

// DLQSubject is the subject under which a message with the given subject is dead-lettered.
func (c Consumer) DLQSubject(subject string) string {
	return c.substitute(c.DLQ.Subject, "{consumer}", c.Durable, "{subject}", subject)
}

func (c Consumer) substitute(template string, pairs ...string) string {
	return strings.NewReplacer(append(pairs, "{stream}", c.Stream)...).Replace(template)
}
