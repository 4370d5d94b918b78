package policy

import (
	"math"
	"strings"
	"time"
)

// The three forms of an HTTP-date (RFC 9110, section 5.6.7). All are in GMT.
var dateForms = [...]string{
	"Mon, 02 Jan 2006 15:04:05 GMT",
	"Monday, 02-Jan-06 15:04:05 GMT",
	"Mon Jan _2 15:04:05 2006",
}

// ParseRetryAfter reads a Retry-After header (RFC 9110, section 10.2.3): seconds, however many, or an HTTP-date. It is 0 for a
// date that has passed. ok is false for nonsense, which is to be ignored.
func ParseRetryAfter(value string, now time.Time) (later time.Duration, ok bool) {
	value = strings.Trim(value, " \t")
	if value == "" {
		return 0, false
	}
	if isDigits(value) {
		return seconds(value), true
	}
	for _, form := range dateForms {
		if t, err := time.Parse(form, value); err == nil {
			return max(t.Sub(now), 0), true
		}
	}
	return 0, false
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// seconds reads digits, saturating at the longest Duration.
func seconds(digits string) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	var n int64
	for i := range len(digits) {
		n = n*10 + int64(digits[i]-'0')
		if n > most {
			return math.MaxInt64
		}
	}
	return time.Duration(n) * time.Second
}
