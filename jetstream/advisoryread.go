package jetstream

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// advisoryReader reads advisories where nothing may be made, so that there is no durable to lease them from: from the stream, one by
// one, and removes those that are done. Several sidecars may do so at a time. Two that read the same one both handle it, so handling
// must bear that; a removal that another has done is fine.
type advisoryReader struct {
	source *Source
	log    *slog.Logger
	handle func(context.Context, []byte) (done bool)

	removes bool                // the user may remove from the stream
	done    map[advisoryID]bool // handled, and not removed yet
	said    string
}

// advisoryID tells an advisory from one of the same sequence in a stream made anew.
type advisoryID struct {
	seq    uint64
	stored int64 // ns
}

func (r *advisoryReader) run(ctx context.Context) {
	r.done = map[advisoryID]bool{}
	for ctx.Err() == nil {
		r.say(ctx, r.pass(ctx))
		wait := time.NewTimer(halfRandom(advisoryPause))
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
	}
}

// pass handles what is in the stream now.
func (r *advisoryReader) pass(ctx context.Context) error {
	conn, subject := r.source.conn, r.source.advisories()
	for from := uint64(1); ctx.Err() == nil; {
		m, err := conn.stored(ctx, AdvisoryStream, map[string]any{"seq": from, "next_by_subj": subject})
		if m == nil || err != nil {
			return err
		}
		if err := r.mayRemove(ctx); err != nil {
			return err
		}
		from = m.Seq + 1
		id := advisoryID{m.Seq, m.Time.UnixNano()}
		if !r.done[id] && !r.handle(ctx, m.Body) {
			continue
		}
		r.done[id] = true
		if _, err := conn.RemoveStored(ctx, AdvisoryStream, m.Seq); err != nil {
			return err
		}
		delete(r.done, id)
	}
	return nil
}

// mayRemove tries a removal of nothing. What could not be removed would be handled again after each start, so that in time a
// message would have a second entry in the DLQ.
func (r *advisoryReader) mayRemove(ctx context.Context) error {
	if r.removes {
		return nil
	}
	_, err := r.source.conn.RemoveStored(ctx, AdvisoryStream, 0)
	r.removes = err == nil
	return err
}

// say logs once what is wrong, until something else is or nothing.
func (r *advisoryReader) say(ctx context.Context, err error) {
	text := ""
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNotConnected) {
		text = oneLine(err.Error(), 300)
	}
	if text != "" && text != r.said {
		r.log.Warn("messages that the server gives up on may not be found", slog.String("error", text))
	}
	r.said = text
}
