package dlq

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// ParseMoment reads a time of a filter as people write it: a duration before now, also in days, or RFC 3339.
func ParseMoment(v string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(v, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil && n >= 0 && n < 36500 {
			return now.Add(-time.Duration(n * 24 * float64(time.Hour))), nil
		}
	}
	if ago, err := time.ParseDuration(v); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
		return at, nil
	}
	return time.Time{}, errors.New("it is neither a duration ago, as 90m, 24h or 7d, nor a time, as 2026-01-02T15:04:05Z")
}

// ParseStatus reads the status of a filter: a number, or "none" for entries without an answer.
func ParseStatus(v string) (int, error) {
	if v == "none" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, errors.New(`it is neither an HTTP status nor "none", for entries without one`)
	}
	return n, nil
}

// ParseSpan reads sequences of a filter: N, A-B, A- or -B. An end that is left out is 0.
func ParseSpan(v string) (first, last uint64, err error) {
	from, to, ranged := strings.Cut(v, "-")
	if !ranged {
		to = from
	}
	number := func(text string) (n uint64) {
		if text == "" && ranged && v != "-" {
			return 0
		}
		n, e := strconv.ParseUint(text, 10, 63)
		if e != nil || n == 0 {
			err = errors.New("it is neither a sequence nor a range A-B of them")
		}
		return n
	}
	first, last = number(from), number(to)
	return first, last, err
}
