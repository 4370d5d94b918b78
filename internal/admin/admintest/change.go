package admintest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

// Stats is dlq.Service's.
func (s *Letters) Stats(ctx context.Context, f dlq.Filter) (*dlq.Stats, error) {
	if err := s.pass(ctx); err != nil {
		return nil, err
	}
	found, upTo := s.selected(f)
	stats := &dlq.Stats{Groups: []dlq.Group{}, UpTo: upTo}
	for _, l := range found {
		stats.Entries++
		stats.Bytes += l.Size
		if stats.Oldest == nil {
			stats.Oldest = &l.Time
		}
		stats.Newest = &l.Time
		i := slices.IndexFunc(stats.Groups, func(g dlq.Group) bool {
			return g.Consumer == l.Consumer && g.Subject == l.Subject && g.Reason == l.Reason && g.Status == l.Status
		})
		if i < 0 {
			i = len(stats.Groups)
			stats.Groups = append(stats.Groups, dlq.Group{Consumer: l.Consumer, Subject: l.Subject, Reason: l.Reason, Status: l.Status, Oldest: l.Time})
		}
		stats.Groups[i].Count++
		stats.Groups[i].Newest = l.Time
	}
	slices.SortStableFunc(stats.Groups, func(a, b dlq.Group) int { return cmp.Compare(b.Count, a.Count) })
	return stats, nil
}

// Remove is dlq.Service's.
func (s *Letters) Remove(ctx context.Context, f dlq.Filter, o dlq.RemoveOptions) (*dlq.Report, error) {
	return s.each(ctx, f, o.DryRun, o.OnProgress, func(l *dlq.Letter) dlq.Outcome {
		s.drop(l)
		return dlq.Outcome{Result: dlq.Removed}
	})
}

// Replay is dlq.Service's.
func (s *Letters) Replay(ctx context.Context, f dlq.Filter, o dlq.ReplayOptions) (*dlq.Report, error) {
	return s.each(ctx, f, o.DryRun, o.OnProgress, func(l *dlq.Letter) dlq.Outcome {
		out := dlq.Outcome{Result: dlq.Acked, Status: 200}
		switch {
		case o.MaxReplays > 0 && l.Replays >= o.MaxReplays:
			out = dlq.Outcome{Result: dlq.Kept, Why: fmt.Sprintf("it was replayed %d times already", o.MaxReplays)}
		case o.To == dlq.ToStream:
			out = dlq.Outcome{Result: dlq.Published}
		case s.App != nil:
			out = s.App(l)
		}
		if out.Result == dlq.Kept {
			return out
		}
		s.drop(l)
		if out.Result == dlq.Failed {
			again := *l
			again.Reason, again.Status, again.Error, again.Replays = out.Reason, out.Status, out.Why, l.Replays+1
			out.NewStream, out.NewSeq = l.DLQStream, s.Add(again)
		}
		return out
	})
}

func (s *Letters) drop(l *dlq.Letter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letters = slices.DeleteFunc(s.letters, func(have *dlq.Letter) bool { return have == l })
}

func (s *Letters) each(ctx context.Context, f dlq.Filter, dry bool, told func(dlq.Progress), do func(*dlq.Letter) dlq.Outcome) (*dlq.Report, error) {
	chosen, upTo := s.selected(f)
	r := &dlq.Report{Progress: dlq.Progress{Selected: len(chosen)}, Failures: []dlq.Failure{}}
	if dry {
		r.UpTo = upTo
		do = func(*dlq.Letter) dlq.Outcome { return dlq.Outcome{Result: dlq.Selected} }
	}
	var failures dlq.Failures
	for _, l := range chosen {
		err := s.pass(ctx)
		r.Interrupted = err != nil
		select {
		case <-ctx.Done():
			return r, nil
		default:
		}
		if err != nil {
			return r, err
		}
		o := do(l)
		o.Entry = &l.Entry
		switch o.Result {
		case dlq.Failed:
			r.Failed++
		case dlq.Kept:
			r.Kept++
		default:
			r.Done++
		}
		failures.Add(o)
		r.Failures = failures.List()
		if told != nil {
			p := r.Progress
			p.Last = &o
			told(p)
		}
	}
	return r, nil
}
