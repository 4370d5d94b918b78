package dlq

import (
	"cmp"
	"slices"
)

// maxFailures bounds the causes that are told apart.
const maxFailures = 100

// Failures adds up what is still in the DLQ, and why. The zero value is empty.
type Failures struct {
	of map[Failure]*Failure
}

// Add counts what became of an entry, if it is still there, and reports whether it is. Answers are not told apart by their bodies, each
// of which may be another: that of the example is shown.
func (a *Failures) Add(o Outcome) bool {
	if o.Result != Failed && o.Result != Kept {
		return false
	}
	key := Failure{Result: o.Result, Consumer: o.Entry.Consumer, Reason: o.Reason, Status: o.Status, Why: o.Why}
	if o.answer {
		key.Why = ""
	}
	f := a.of[key]
	if f == nil && len(a.of) >= maxFailures {
		key = Failure{Result: o.Result, Why: "other causes"}
		f = a.of[key]
	}
	if f == nil {
		f = &Failure{}
		*f = key
		at := o.there()
		f.Stream, f.Example = at.Stream, at.Seq
		f.Why = cmp.Or(key.Why, o.Why)
		if a.of == nil {
			a.of = map[Failure]*Failure{}
		}
		a.of[key] = f
	}
	f.Count++
	return true
}

// there is where the entry is, or the new one instead.
func (o *Outcome) there() Cursor {
	if o.NewSeq == 0 {
		return o.Entry.Cursor()
	}
	return Cursor{Stream: o.NewStream, Seq: o.NewSeq}
}

// List are the causes so far, the most frequent first.
func (a *Failures) List() []Failure {
	all := []Failure{}
	for _, f := range a.of {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Example, b.Example))
	})
	return all
}
