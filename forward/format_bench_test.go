//go:build unix

package forward

import (
	"testing"
	"time"
)

// What a format, and a signature by one secret, cost beside the request: the message is of 1 KiB.
func BenchmarkFormat(b *testing.B) {
	for _, f := range []Format{CloudEvents, CloudEventsJSON} {
		b.Run(string(f), func(b *testing.B) {
			m := benchMessage(1024)
			b.ReportAllocs()
			for b.Loop() {
				f.dress(m)
			}
		})
	}
	b.Run("signature", func(b *testing.B) {
		s, m := newSigner([]string{secretOne}), benchMessage(1024)
		var lines []byte
		b.ReportAllocs()
		for b.Loop() {
			lines = s.reserve(lines[:0], m)
			s.fill(lines, time.Now(), m.Body)
		}
	})
}
