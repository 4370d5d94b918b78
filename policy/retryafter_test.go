package policy

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestParseRetryAfter(t *testing.T) {
	past := []string{"0", "Sun, 01 Mar 2026 11:59:59 GMT", "Sun, 06 Nov 1994 08:49:37 GMT"} // these make sense too
	for value, want := range map[string]time.Duration{
		"0":                                0,
		"1":                                time.Second,
		"120":                              2 * time.Minute,
		" 7\t":                             7 * time.Second,
		"000009":                           9 * time.Second,
		"9223372036":                       9223372036 * time.Second,
		"9223372037":                       math.MaxInt64,
		"18446744073709551617":             math.MaxInt64,
		strings.Repeat("9", 100_000):       math.MaxInt64,
		strings.Repeat("0", 100_000) + "3": 3 * time.Second,
		"Sun, 01 Mar 2026 12:00:30 GMT":    30 * time.Second,
		"Sunday, 01-Mar-26 12:00:30 GMT":   30 * time.Second,
		"Sun Mar  1 12:00:30 2026":         30 * time.Second,
		"Sun, 01 Mar 2026 11:59:59 GMT":    0,
		"Sun, 06 Nov 1994 08:49:37 GMT":    0,
		"Fri, 31 Dec 9999 23:59:59 GMT":    math.MaxInt64,
		"Sun, 01 Mar 2026 12:00:30 CET":    0,
		"Sun, 31 Feb 2026 12:00:30 GMT":    0,
		"2026-03-01T12:00:30Z":             0,
		"":                                 0,
		" ":                                0,
		"-1":                               0,
		"+1":                               0,
		"1.5":                              0,
		"1e3":                              0,
		"1, 2":                             0,
		"soon":                             0,
		"٣":                                0,
		"1\x00":                            0,
	} {
		if got, ok := ParseRetryAfter(value, noon); got != want || ok != (want > 0 || slices.Contains(past, value)) {
			t.Errorf("%.40q: got %v, %v, want %v", value, got, ok, want)
		}
	}
	east := noon.In(time.FixedZone("", 9*3600))
	if got, _ := ParseRetryAfter("Sun, 01 Mar 2026 12:00:30 GMT", east); got != 30*time.Second {
		t.Errorf("in another zone: %v", got)
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, value := range []string{"120", "Sun, 01 Mar 2026 12:00:30 GMT", "Sunday, 01-Mar-26 12:00:30 GMT", "Sun Mar  1 12:00:30 2026", "-1"} {
		f.Add(value, int64(0))
	}
	f.Fuzz(func(t *testing.T, value string, offset int64) {
		if got, ok := ParseRetryAfter(value, noon.Add(time.Duration(offset))); got < 0 || got > 0 && !ok {
			t.Fatalf("%q: %v, %v", value, got, ok)
		}
	})
}
