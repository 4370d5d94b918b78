package dlq

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// madeUp are sources of entries of which each list is one stream's times, and how many of them are open.
type madeUp struct {
	times  [][]int
	open   int
	most   int // open at once
	opened []int
	ahead  int // entries that were read and not brought yet
}

func (m *madeUp) sources() (all []*source) {
	m.opened = make([]int, len(m.times))
	for i, times := range m.times {
		name := fmt.Sprintf("S%d", i)
		least := time.Time{}
		if len(times) > 0 {
			least = time.Unix(int64(slices.Min(times)), 0)
		}
		all = append(all, &source{name: name, least: least, open: func(after uint64) iter.Seq2[*Entry, error] {
			return func(yield func(*Entry, error) bool) {
				m.opened[i]++
				m.open++
				m.most = max(m.most, m.open)
				defer func() { m.open-- }()
				for n := after; n < uint64(len(times)); n++ {
					m.ahead++
					if !yield(&Entry{DLQStream: name, Seq: n + 1, Time: time.Unix(int64(times[n]), 0)}, nil) {
						return
					}
				}
			}
		}})
	}
	return all
}

// Whatever the streams hold, a merge brings all of it once, by time and then by stream, each stream's in its own order also where the
// clock went back; and it reads no more than one entry of each stream ahead.
func TestMergeIsByTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &madeUp{times: rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 20), 0, 12), 0, 6).Draw(t, "times")}
		backwards := rapid.Bool().Draw(t, "backwards")
		total := 0
		for _, times := range m.times {
			total += len(times)
			if !backwards {
				slices.Sort(times)
			}
		}
		stopAt := rapid.IntRange(0, total).Draw(t, "stop at")
		var all []*Entry
		next := map[string]uint64{}
		for e, err := range merge(m.sources(), &Passed{}) {
			if err != nil {
				t.Fatal(err)
			}
			if next[e.DLQStream]++; next[e.DLQStream] != e.Seq {
				t.Fatalf("%s:%d comes as number %d", e.DLQStream, e.Seq, next[e.DLQStream])
			}
			all = append(all, e)
			if m.ahead-len(all) > len(m.times) {
				t.Fatalf("%d are read ahead", m.ahead-len(all))
			}
			if len(all) == stopAt {
				break
			}
		}
		if len(all) != stopAt && len(all) != total || m.open != 0 {
			t.Fatalf("%d of %d, %d open", len(all), total, m.open)
		}
		sorted := slices.IsSortedFunc(all, func(a, b *Entry) int {
			if c := a.Time.Compare(b.Time); c != 0 {
				return c
			}
			return slices.Compare([]string{a.DLQStream}, []string{b.DLQStream})
		})
		if !backwards && !sorted {
			t.Fatalf("not by time")
		}
	})
}

// A stream is read when its turn comes, and none that waits for long is held open.
func TestMergeHoldsNoIdleReader(t *testing.T) {
	long := make([]int, 3*idleMost)
	for i := range long {
		long[i] = i + 1
	}
	// S0 is read through; S1 has an entry at the start and one at the end; S2 begins at the end.
	m := &madeUp{times: [][]int{long, {0, 4 * idleMost}, {5 * idleMost}}}
	n := 0
	for e, err := range merge(m.sources(), &Passed{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if e.DLQStream == "S0" && int(e.Seq) > 2*idleMost+1 && m.open != 1 {
			t.Fatalf("%d are open at %d", m.open, e.Seq)
		}
	}
	if n != len(long)+3 || m.most != 2 || !slices.Equal(m.opened, []int{1, 2, 1}) || m.open != 0 {
		t.Errorf("%d entries, at most %d open at once, opened %v times, %d left open", n, m.most, m.opened, m.open)
	}
}

// An error of one stream ends the merge.
func TestMergeEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	m := &madeUp{times: [][]int{{1, 3}}}
	bad := &source{name: "T", least: time.Unix(2, 0), open: func(uint64) iter.Seq2[*Entry, error] {
		return func(yield func(*Entry, error) bool) { yield(nil, broken) }
	}}
	n := 0
	var last error
	for _, err := range merge(append(m.sources(), bad), &Passed{}) {
		n, last = n+1, err
	}
	if n != 2 || !errors.Is(last, broken) || m.open != 0 {
		t.Errorf("%d, %v, %d open", n, last, m.open)
	}
}

func TestPositionText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfDistinct(rapid.StringMatching(`[A-Za-z:_,-]{1,8}`), rapid.ID[string]).Draw(t, "names")
		var p Position
		for _, name := range names {
			p = append(p, Cursor{Stream: name, Seq: rapid.Uint64Range(0, 1<<62).Draw(t, "seq")})
		}
		if back, err := ParsePosition(p.String()); err != nil || !slices.Equal(back, p) {
			t.Fatalf("%v: %q is %v", err, p, back)
		}
	})
	for _, text := range []string{".", "A", "A:1.", ".A:1", "A:1..B:2", "A:1.A:2", "A:x"} {
		if p, err := ParsePosition(text); err == nil {
			t.Errorf("%q is %v", text, p)
		}
	}
}
