package dlq

import "context"

// dry tells what is selected, and what of it would not be removed.
func (r *run) dry(refs []ref, upTo []Cursor, explicit bool) *Report {
	return r.tell(refs, upTo, func(one *ref) (Result, string) {
		if why := unripe(one, explicit); why != "" {
			return Kept, why
		}
		return Selected, ""
	})
}

// dry tells what is selected, and what of it would not be replayed: refused are the entries that their stream would not take, and why.
func (r *replay) dry(ctx context.Context, refs []ref, upTo []Cursor, refused map[Cursor]string) (*Report, error) {
	if err := r.newer.choose(ctx, refs, nil); err != nil {
		return r.end(stopped(ctx)), unlessStopped(ctx, err)
	}
	const why = "it was replayed and failed again, and its message is there anew"
	const twin = "another entry of its message is replayed before it, which answers both"
	return r.tell(refs, upTo, func(one *ref) (Result, string) {
		switch superseded, chosen := r.newer.than(one); {
		case superseded && r.newer.twin(one):
			return Gone, twin
		case superseded && chosen:
			return Gone, why
		case superseded:
			return Failed, why
		}
		if why := r.unfit(one); why != "" {
			return Kept, why
		}
		if why := refused[one.entry().Cursor()]; why != "" {
			return Kept, why
		}
		r.newer.answered(one)
		return Selected, ""
	}), nil
}

// tell makes the report of a dry run: would is what would become of an entry, and why if that is not what was asked for.
func (r *run) tell(refs []ref, upTo []Cursor, would func(*ref) (Result, string)) *Report {
	type cause struct {
		Result
		stream, why string
	}
	at := map[cause]int{}
	var all []Exception
	for i := range refs {
		one := &refs[i]
		result, why := would(one)
		r.note(Outcome{Entry: one.entry(), Result: result, Why: why})
		if why == "" {
			continue
		}
		c := cause{result, one.stream, why}
		if _, ok := at[c]; !ok {
			at[c] = len(all)
			all = append(all, Exception{Result: result, Stream: one.stream, Why: why})
		}
		all[at[c]].Seqs = append(all[at[c]].Seqs, one.seq())
	}
	rep := r.end(false)
	rep.UpTo, rep.Exceptions = upTo, all
	return rep
}
