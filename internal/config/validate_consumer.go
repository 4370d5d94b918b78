package config

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/dedupe"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// leastDelay is the shortest retry.initial: below it a retry is a tight loop.
const leastDelay = time.Millisecond

// leastProbe is the shortest time between two probes of an app: below it probing is a tight loop.
const leastProbe = 10 * time.Millisecond

// mostFailures bounds the messages that a breaker remembers.
const mostFailures = 10_000

// mostRate is the highest rate that is told from no limit.
const mostRate = 1e9

// consumers checks every consumer, and those of one against the others.
func (c *checker) consumers() {
	all := c.l.Consumers
	if len(all) == 0 && !c.wrong["consumers"] {
		c.add(Fault{Key: "consumers", Why: "is empty: give at least one consumer with stream and durable"})
	}
	for _, one := range all {
		c.dlqs = append(c.dlqs, dlqNames{one.DLQStream(), one.DLQSubjects()})
	}
	owner := make(map[string]int)
	for i, one := range all {
		p := fmt.Sprintf("consumers[%d]", i)
		c.consumer(p, one)
		c.retry(p+".retry", one.Retry)
		c.breaker(p+".breaker", one.Breaker)
		c.status(p+".status", one.Status)
		c.dedupe(p+".dedupe", one)
		if one.DLQ.Enabled {
			c.deadLetters(p+".dlq", one, c.dlqs[i])
		}
		id := one.Stream + "\x00" + one.Durable
		if other, ok := owner[id]; ok && one.Stream != "" && one.Durable != "" {
			c.fault(p+".durable", "is also the durable of consumers[%d] on stream %s; two consumers would share its messages", other, quote(one.Stream))
		} else {
			owner[id] = i
		}
	}
}

func (c *checker) consumer(p string, one Consumer) {
	c.name(p+".stream", one.Stream)
	c.name(p+".durable", one.Durable)
	c.filters(p+".filter_subjects", one.FilterSubjects)
	if _, err := ParseDeliverPolicy(one.DeliverPolicy); err != nil {
		c.fault(p+".deliver_policy", "%v", err)
	} else if one.Manage == "none" && c.given(p+".deliver_policy") {
		c.warn(p+".deliver_policy", "has no effect with manage: none, which makes no consumer")
	}
	if one.AckWait < time.Second {
		c.fault(p+".ack_wait", "must be at least 1s: leases are kept alive at a third of it")
	}
	c.between(p+".replicas", one.Replicas, 0, 5)
	c.urlPath(p+".path", one.Path)
	c.method(p+".method", one.Method)
	c.flow(p, one)
	c.batch(p+".batch", one)
	c.order(p+".order", one.Order)
	if one.MaxDeliver < 0 {
		c.fault(p+".max_deliver", "must not be negative; 0 means no limit")
	}
	c.notNegative(p+".max_age", one.MaxAge)
	if one.RetryStream.MaxBytes < 0 {
		c.fault(p+".retry_stream.max_bytes", "must not be negative; 0 means no limit")
	}
	if !(one.Rate >= 0 && one.Rate <= mostRate) {
		c.fault(p+".rate", "must be a number from 0 to %.0f; 0 means no limit", mostRate)
	}
}

// flow checks what bounds the messages under way.
func (c *checker) flow(p string, one Consumer) {
	concurrency := c.concurrency(p+".concurrency", one)
	c.between(p+".prefetch", one.Prefetch, 0, mostPrefetch)
	if one.MaxBytes < 1 {
		c.fault(p+".max_bytes", "must be at least 1; one message is always allowed")
	}
	if one.Order == "stream" && one.Concurrency > 1 && c.given(concurrency) {
		c.fault(concurrency, "must be 1 with order: stream, which handles one message at a time")
	}
	c.ackPending(p+".max_ack_pending", one)
}

// ackPending checks how many messages may be unsettled against those that may be leased.
func (c *checker) ackPending(p string, one Consumer) {
	if one.MaxAckPending < 1 {
		c.fault(p, "must be at least 1")
		return
	}
	if !within(one.Concurrency, 1, mostConcurrency) || !within(one.Prefetch, 0, mostPrefetch) || !within(one.Batch.MaxMessages, 1, mostMessages) {
		return // reported there
	}
	switch leased := one.Leases(); {
	case one.MaxAckPending >= leased:
	case one.Batch.MaxMessages > 1:
		c.warn(p, "is less than concurrency × batch.max_messages + prefetch (%d): that many can never be leased", leased)
	default:
		c.warn(p, "is less than concurrency + prefetch (%d): that many can never be leased", leased)
	}
}

// concurrency checks how many requests there may be at a time, and returns the key path at which the most was given.
func (c *checker) concurrency(p string, one Consumer) string {
	all, _, _ := find(schema().sub, "consumers")
	f, _, _ := find(all.sub, "concurrency")
	most := c.l.firstPart(p, f)
	c.shown[p] = c.shown[join(p, f.sub[0].key)]
	c.between(most, one.Concurrency, 1, mostConcurrency)
	if one.Adaptive && one.InFlight() == 1 {
		c.warn(p+".adaptive", "has no effect with one request at a time")
	}
	return most
}

// The most of what may be under way of a consumer.
const (
	mostConcurrency = 10_000
	mostPrefetch    = 100_000
	mostMessages    = 10_000  // in a batch
	mostBatched     = 100_000 // in all batches
)

// batch checks how messages are put together. Without batches only the numbers are looked at.
func (c *checker) batch(p string, one Consumer) {
	b := one.Batch
	c.between(p+".max_messages", b.MaxMessages, 1, mostMessages)
	if b.MaxBytes < 1 {
		c.fault(p+".max_bytes", "must be at least 1; one message is always allowed")
	}
	c.notNegative(p+".max_wait", b.MaxWait)
	if b.MaxMessages > 1 && one.Order != "none" {
		c.fault(p+".max_messages", "must be 1 with order: %s, of which one message of a key is at the app at a time", one.Order)
	}
	if n := one.InFlight(); within(n, 1, mostConcurrency) && within(b.MaxMessages, 1, mostMessages) && n*b.MaxMessages > mostBatched {
		c.fault(p+".max_messages", "times concurrency (%d) is %d messages, and must be at most %d", n, n*b.MaxMessages, mostBatched)
	}
}

// order checks what must not overtake.
func (c *checker) order(p, order string) {
	name, isHeader := strings.CutPrefix(order, "header:")
	switch {
	case isHeader && !validHeaderName(name):
		c.fault(p, "must name a message header after header:, as in header:Customer-Id")
	case !isHeader && order != "none" && order != "subject" && order != "stream":
		c.fault(p, "must be none, subject, header:<Name> or stream")
	}
}

// breaker checks a breaker; one that is off is not looked at.
func (c *checker) breaker(p string, b policy.BreakerConfig) {
	switch {
	case b.Failures < 0:
		c.fault(p+".failures", "must not be negative; 0 turns the breaker off")
	case b.Failures == 0:
		return
	case b.Failures > mostFailures:
		c.fault(p+".failures", "must be at most %d; 0 turns the breaker off", mostFailures)
	}
	c.span(span{p, "probe_interval", b.ProbeInterval, "probe_max", b.ProbeMax}, leastProbe)
	c.notNegative(p+".hold", b.Hold)
}

func (c *checker) retry(p string, r policy.RetryConfig) {
	c.span(span{p, "initial", r.Initial, "max", r.Max}, leastDelay)
	if !(r.Multiplier >= 1) || math.IsInf(r.Multiplier, 0) {
		c.fault(p+".multiplier", "must be a finite number from 1")
	}
	if !(r.Jitter >= 0 && r.Jitter <= 1) {
		c.fault(p+".jitter", "must be 0 to 1")
	}
	c.notNegative(p+".retry_after_max", r.RetryAfterMax)
}

// status checks the lists that the user gave: entries that are none, and an entry in two of them.
func (c *checker) status(p string, s policy.StatusConfig) {
	first := make(map[string]string)
	for _, l := range []struct {
		key     string
		entries []string
	}{{"ack", s.Ack}, {"retry", s.Retry}, {"dlq", s.DLQ}, {"drop", s.Drop}} {
		for i, entry := range l.entries {
			at := fmt.Sprintf("[%d]", i)
			entry = strings.ToLower(entry)
			if !validStatus(entry) {
				c.item(p+"."+l.key, at, quote(entry), "is neither the status of a whole answer (101, 200 to 599) nor a class (1xx to 5xx)")
				continue
			}
			if other, ok := first[entry]; ok && other != l.key {
				c.item(p+"."+l.key, at, quote(entry), "is also in status.%s: it can have one meaning only", other)
				continue
			}
			first[entry] = l.key
		}
	}
	if table, err := policy.NewStatusTable(s); err == nil && table.Lookup(http.StatusOK) == policy.Retry {
		c.warn(p+".ack", "a 200 answer means retry: no list has 2xx")
	}
}

// validStatus reports whether an answer can have the status, or one of the class. Those below 200 come before an answer, but for 101.
func validStatus(s string) bool {
	if len(s) != 3 || s[0] < '1' || s[0] > '5' {
		return false
	}
	return s[1:] == "xx" || isDigit(s[1]) && isDigit(s[2]) && (s[0] != '1' || s == "101")
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

func (c *checker) dedupe(p string, one Consumer) {
	d := one.Dedupe
	if d.Store == "off" {
		return
	}
	c.atLeast(p+".ttl", d.TTL, leastTTL, "a bucket keeps no key for less; store: off turns it off")
	if d.Store == "kv" {
		c.bucket(p, d)
	}
	if d.MaxEntries < 1 {
		c.fault(p+".max_entries", "must be at least 1; store: off turns it off")
	}
	if !validHeaderName(d.Header) {
		c.fault(p+".header", "must be the name of a message header, as in %s", http.CanonicalHeaderKey("nats-msg-id"))
	}
}

// leastTTL is the shortest time that the server keeps a key. Of what is forgotten sooner hardly anything comes again.
const leastTTL = 100 * time.Millisecond

// bucket checks the key-value bucket of a consumer's dedupe against those of the consumers before it.
func (c *checker) bucket(p string, d dedupe.Config) {
	switch {
	case !validBucket(d.Bucket):
		c.fault(p+".bucket", "must be 1 to %d letters, digits, - and _, the name of a key-value bucket", longestBucket)
	case d.Bucket == jetstream.StateBucket:
		c.fault(p+".bucket", "is the bucket of the sidecar's own marks, which have another ttl")
	}
	for i, other := range c.l.Consumers {
		q := fmt.Sprintf("consumers[%d].dedupe", i)
		if q == p {
			return
		}
		if o := other.Dedupe; o.Store == "kv" && o.Bucket == d.Bucket && o.TTL != d.TTL {
			c.fault(p+".ttl", "differs from %s.ttl (%s), and they share the bucket %s, which has one ttl", q, shortDuration(o.TTL), quote(d.Bucket))
			return
		}
	}
}

// longestBucket is the longest name of a bucket, in bytes: its stream's has KV_ before it.
const longestBucket = longestName - len("KV_")

var bucketName = regexp.MustCompile(`^[-_a-zA-Z0-9]+$`)

func validBucket(name string) bool { return len(name) <= longestBucket && bucketName.MatchString(name) }
