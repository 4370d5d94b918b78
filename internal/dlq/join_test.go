package dlq

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

func stored(seq uint64, key int, part string) *jetstream.Stored {
	h := map[string][]string{
		jetstream.HeaderStream: {"O"}, jetstream.HeaderConsumer: {"w"}, jetstream.HeaderSequence: {strconv.Itoa(key + 1)}, jetstream.HeaderTimeStamp: {"2026-01-02T03:04:05Z"},
	}
	if part != "" {
		h[jetstream.HeaderPart] = []string{part}
	}
	return &jetstream.Stored{Seq: seq, Time: time.Unix(int64(seq), 0), Header: h, Size: 1}
}

// Whatever is stored in whatever order: entries come in order, each stored message is part of exactly one entry, and no part is
// alone whose other is there too.
func TestJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*jetstream.Stored
		for i, kind := range rapid.SliceOfN(rapid.IntRange(0, 8), 0, 700).Draw(t, "kinds") {
			key := rapid.IntRange(0, 5).Draw(t, "key")
			part := ""
			switch kind {
			case 0, 1:
				part = firstPart
			case 2, 3:
				part = secondPart
			default:
				key = 1000 + i
			}
			all = append(all, stored(uint64(i+1), key, part))
		}
		index := &pairs{}
		for _, m := range all {
			if e, _ := parse("D", m); e.Part != "" {
				index.add(e)
			}
		}
		looked := 0
		j := joiner{lookUp: func() (*pairs, error) { looked++; return index, nil }}
		var got []*Entry
		for _, m := range all {
			e, ok := parse("D", m)
			if !ok {
				t.Fatalf("%v is no entry", m)
			}
			ready, err := j.add(e)
			if err != nil || len(j.held) > heldMost {
				t.Fatalf("%v, %d held", err, len(j.held))
			}
			got = append(got, ready...)
		}
		rest, _ := j.flush()
		check(t, append(got, rest...), len(all), looked)
	})
}

func check(t *rapid.T, got []*Entry, stored, looked int) {
	seen := map[uint64]bool{}
	alone := map[string][]string{}
	for i, e := range got {
		if i > 0 && e.Seq <= got[i-1].Seq {
			t.Fatalf("entry %d comes after %d", e.Seq, got[i-1].Seq)
		}
		for _, p := range e.parts {
			if seen[p.seq] {
				t.Fatalf("message %d is in two entries", p.seq)
			}
			seen[p.seq] = true
		}
		if e.Part != "" {
			alone[e.letterKey()] = append(alone[e.letterKey()], e.Part)
		}
		if (len(e.parts) == 2) != (e.Size == 2) || len(e.parts) == 2 && e.Part != "" {
			t.Fatalf("%+v", e)
		}
	}
	if len(seen) != stored {
		t.Fatalf("%d of %d messages are in an entry", len(seen), stored)
	}
	for key, parts := range alone {
		if slices.Contains(parts, firstPart) && slices.Contains(parts, secondPart) {
			t.Fatalf("%q has both parts alone", key)
		}
	}
	if looked > 1 {
		t.Fatalf("the stream was read %d times more", looked)
	}
}

// No header makes an entry of what is none, or stops the reading.
func FuzzParse(f *testing.F) {
	f.Add("ORDERS", "w", "1", "422", "1/2", "3", "2026-01-02T03:04:05.6Z")
	f.Add("", "", "", "", "", "", "")
	f.Add("O", "w", "-1", "99999999999999999999", "3/2", "-2", "yesterday")
	f.Add("O\x1b[2J", "w\xff", " 7 ", "0x10", "2/2", "18446744073709551615", "0001-01-01T00:00:00Z")
	f.Fuzz(func(t *testing.T, stream, consumer, seq, status, part, replays, stamp string) {
		m := &jetstream.Stored{Seq: 5, Subject: "x", Header: map[string][]string{
			jetstream.HeaderStream: {stream}, jetstream.HeaderConsumer: {consumer}, jetstream.HeaderSequence: {seq}, jetstream.HeaderStatus: {status},
			jetstream.HeaderPart: {part}, jetstream.HeaderReplays: {replays}, jetstream.HeaderTimeStamp: {stamp},
		}}
		e, ok := parse("D", m)
		if e == nil || e.Seq != 5 || e.DLQStream != "D" || len(e.parts) != 1 {
			t.Fatalf("%+v", e)
		}
		if ok && (e.Stream == "" || e.Consumer == "" || e.Sequence == 0) || !ok && (e.Part != "" || e.Reason != "") {
			t.Fatalf("%v %+v", ok, e)
		}
		if e.Status < 0 || e.Status > 999 || e.Replays < 0 || e.Part != "" && e.Part != firstPart && e.Part != secondPart {
			t.Fatalf("%+v", e)
		}
		original(m.Header)
	})
}
