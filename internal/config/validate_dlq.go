package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

var placeholder = regexp.MustCompile(`\{[^{}]*\}|[{}]`)

// deadLetters checks where a consumer's dead letters go.
func (c *checker) deadLetters(p string, one Consumer, dlq dlqNames) {
	if c.template(p+".stream", one.DLQ.Stream, "{stream}", "{consumer}") {
		c.dlqStream(p+".stream", one, dlq.stream)
	}
	if c.template(p+".subject", one.DLQ.Subject, "{stream}", "{consumer}", "{subject}") {
		c.dlqSubject(p+".subject", one, dlq)
	}
	c.between(p+".replicas", one.DLQ.Replicas, 0, 5)
	c.notNegative(p+".max_age", one.DLQ.MaxAge)
	if a := one.DLQ.MaxAge; a > 0 && a < 100*time.Millisecond {
		c.fault(p+".max_age", "must be at least 100ms, which is the server's least")
	}
	if one.DLQ.MaxBytes < 0 {
		c.fault(p+".max_bytes", "must not be negative; 0 means no limit")
	}
	c.alert(p, one)
}

// alert checks when and where alerts are raised.
func (c *checker) alert(p string, one Consumer) {
	if one.DLQ.AlertDepth < 0 {
		c.fault(p+".alert_depth", "must not be negative; 0 means no alerts")
	}
	if one.DLQ.AlertURL == "" {
		return
	}
	u, err := url.Parse(one.DLQ.AlertURL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https":
		c.fault(p+".alert_url", "must be a URL that begins with http:// or https://")
	case u.Hostname() == "":
		c.fault(p+".alert_url", "has no host")
	}
}

// template checks that a template has only known placeholders.
func (c *checker) template(path, template string, known ...string) bool {
	for _, found := range placeholder.FindAllString(template, -1) {
		if len(found) < 2 {
			c.fault(path, "has a lone brace; placeholders are %s", orList(known))
			return false
		}
		if !slices.Contains(known, found) {
			c.fault(path, "has the unknown placeholder %s; known are %s", found, orList(known))
			return false
		}
	}
	return true
}

func (c *checker) dlqStream(path string, one Consumer, name string) {
	if nameFault(name) != "" {
		if nameFault(one.Stream) == "" && nameFault(one.Durable) == "" {
			c.fault(path, "%s %s", "makes a stream name that", nameFault(name))
		}
		return
	}
	if ownStream(name) || slices.ContainsFunc(c.l.Consumers, func(other Consumer) bool { return other.Dedupe.Store == "kv" && name == "KV_"+other.Dedupe.Bucket }) {
		c.fault(path, "makes %s, which is a stream of the sidecar's own", quote(name))
		return
	}
	for i, other := range c.l.Consumers {
		switch {
		case other.Stream != name:
			continue
		case c.given(path):
			c.fault(path, "makes %s, which is the source stream of consumers[%d]: dead letters would be delivered again", quote(name), i)
			return
		default:
			c.fault(fmt.Sprintf("consumers[%d].stream", i), "is also the DLQ stream that %s makes: dead letters would be delivered again", path)
		}
	}
}

// ownStream reports whether the sidecar keeps something else in a stream.
func ownStream(name string) bool {
	return name == jetstream.RetryStream || name == jetstream.AdvisoryStream || name == "KV_"+jetstream.StateBucket
}

func (c *checker) dlqSubject(path string, one Consumer, dlq dlqNames) {
	tokens := strings.Split(one.DLQ.Subject, ".")
	pattern := dlq.subjects
	switch last := tokens[len(tokens)-1]; {
	case !strings.Contains(one.DLQ.Subject, "{subject}"):
		c.fault(path, "lacks {subject}, the original subject, by which dead letters are found")
		return
	case last != "{subject}" || strings.Count(one.DLQ.Subject, "{subject}") > 1:
		c.fault(path, "must end in .{subject}, since the original subject may have several tokens")
		return
	case len(tokens) == 1:
		c.fault(path, "must have a token before {subject}: dead letters would have the subject of their source")
		return
	case strings.Contains(one.DLQ.Subject, "{consumer}") && !slices.Contains(tokens, "{consumer}"):
		c.fault(path, "must have {consumer} as a whole token, between dots")
		return
	case strings.ContainsAny(one.DLQ.Subject, "*>"):
		c.fault(path, "must not have wildcards")
		return
	case strings.HasPrefix(pattern, "$") || strings.HasPrefix(pattern, "_INBOX."):
		c.fault(path, "begins as the server's own subjects do")
		return
	case overlap(pattern, jetstream.RetrySubjects):
		c.fault(path, "makes %s, and the subjects %s are those of stream %s", quote(pattern), jetstream.RetrySubjects, jetstream.RetryStream)
		return
	}
	if why := subjectFault(pattern); why != "" {
		if nameFault(one.Stream) == "" {
			c.fault(path, "%s", why)
		}
		return
	}
	c.dlqCaptured(path, dlq, one)
}

// captures reports a filter that would receive what goes to the DLQ pattern: where the pattern was given, else at the
// filter, and then every one.
func (c *checker) captures(filtersPath string, filters []string, path, pattern string) (found bool) {
	for i, filter := range filters {
		switch {
		case subjectFault(filter) != "" || !overlap(pattern, filter):
			continue
		case c.given(path):
			c.fault(path, "is captured by the filter %s of %s: dead letters would be delivered again", quote(filter), filtersPath)
			return true
		default:
			c.item(filtersPath, fmt.Sprintf("[%d]", i), quote(filter), "captures the dead letters' subject %s: they would be delivered again", quote(pattern))
			found = true
		}
	}
	return found
}

// dlqCaptured checks a DLQ subject pattern against the consumer's filters and the DLQ streams of the others.
func (c *checker) dlqCaptured(path string, dlq dlqNames, one Consumer) {
	for i, other := range c.l.Consumers {
		if other.Stream == one.Stream && c.captures(fmt.Sprintf("consumers[%d].filter_subjects", i), other.FilterSubjects, path, dlq.subjects) && c.given(path) {
			return
		}
		theirs := c.dlqs[i]
		if other.DLQ.Enabled && theirs.stream != dlq.stream && overlap(dlq.subjects, theirs.subjects) {
			c.fault(path, "overlaps the subjects of another DLQ stream, %s; %s", quote(theirs.stream), apart(one, other))
			return
		}
	}
}

// apart is what keeps the DLQ subjects of two consumers apart. {consumer} does not: a DLQ stream takes those of any.
func apart(one, other Consumer) string {
	advice := "give each a word of its own, as in dlq-billing.{stream}.{subject}"
	if one.Stream != other.Stream && !strings.Contains(one.DLQ.Subject, "{stream}") {
		return "add {stream}, or " + advice
	}
	return advice
}
