package dlq

import (
	"reflect"
	"testing"
)

// Wherever a reading over several DLQ streams is cut into pages, what was left out is counted on one of them.
func TestPassedIsOnOnePage(t *testing.T) {
	b := newBench(t, 0)
	b.stream("P_DLQ", "dlq.P.*.>")
	foreign := func(subject string) {
		_, err := b.js.Publish(t.Context(), subject, []byte("x"))
		b.must(err)
	}
	for n := range 3 { // before the first entry of P_DLQ, which is the last of all
		b.put("dlq.P.v.o.a", "P", "v", n+1)
	}
	foreign("dlq.P.w.o.a")
	for n := range 6 {
		b.put("dlq.O.w.o.a", "O", "w", n+1)
		b.put("dlq.O.x.o.a", "O", "x", n+1)
	}
	b.put("dlq.P.w.o.a", "P", "w", 99)
	foreign("dlq.P.w.o.a") // after the last
	s := b.serviceOf(consumerOf("O", "w", "{stream}_DLQ", "dlq.{stream}.{consumer}.{subject}"), consumerOf("P", "w", "{stream}_DLQ", "dlq.{stream}.{consumer}.{subject}"))
	want := Passed{Foreign: 2, Others: 9, OtherConsumers: []string{"v", "x"}}
	for limit := range 8 {
		var all, now Passed
		at, entries := Position{{Stream: "O_DLQ", Seq: 0}, {Stream: "P_DLQ", Seq: 0}}, 0
		read := func(f Filter) {
			f.Passed = &now
			for e, err := range s.List(t.Context(), f) {
				b.must(err)
				entries++
				for i := range at {
					if at[i].Stream == e.DLQStream {
						at[i].Seq = e.Seq
					}
				}
			}
			all.Add(&now)
		}
		if limit > 0 {
			read(Filter{Limit: limit})
		}
		read(Filter{After: at})
		if entries != 7 || !reflect.DeepEqual(all, want) {
			t.Errorf("after a page of %d: %d entries, %+v left out", limit, entries, all)
		}
	}
	st, err := s.Stats(t.Context(), Filter{})
	if err != nil || !reflect.DeepEqual(st.Passed, want) {
		t.Errorf("%v, %+v", err, st)
	}
}
