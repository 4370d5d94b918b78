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
