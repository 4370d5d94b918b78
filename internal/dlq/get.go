package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// Get brings one entry with its headers and its body, joined if it is in two parts; seq may be that of either. A message that
// is no dead letter is brought too: its Reason, Stream and Consumer are empty; and so is an entry of a consumer that is not in the
// configuration, with Other. It returns ErrNotFound if there is none.
func (s *Service) Get(ctx context.Context, stream string, seq uint64) (*Letter, error) {
	l, err := s.get(ctx, stream, seq)
	if err == nil {
		l.Other = l.Stream != "" && !s.scope.has(&l.Entry)
	}
	return l, err
}

func (s *Service) get(ctx context.Context, stream string, seq uint64) (*Letter, error) {
	if !slices.Contains(s.streams, stream) {
		return nil, fmt.Errorf("%w: %s is no DLQ stream of this configuration, which has %s", ErrNotFound, stream, orNone(s.streams))
	}
	m, err := s.conn.Stored(ctx, stream, seq)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("%w: stream %s does not exist", ErrNotFound, stream)
	case err != nil:
		return nil, err
	case m == nil:
		return nil, fmt.Errorf("%w: stream %s has no message %d", ErrNotFound, stream, seq)
	}
	e, ok := parse(stream, m)
	if !ok || e.Part == "" {
		return letter(e, m.Header, m.Body), nil
	}
	return s.joined(ctx, e, m)
}

// joined brings an entry one of whose parts is known.
func (s *Service) joined(ctx context.Context, e *Entry, m *jetstream.Stored) (*Letter, error) {
	other, err := s.mate(ctx, e)
	if err != nil {
		return nil, err
	}
	if other == 0 {
		return letter(e, m.Header, m.Body), nil
	}
	n, err := s.conn.Stored(ctx, e.DLQStream, other)
	if err != nil {
		return nil, err
	}
	if n == nil {
		return letter(e, m.Header, m.Body), nil
	}
	o, ok := parse(e.DLQStream, n)
	if !ok || o.letterKey() != e.letterKey() || o.Part == e.Part {
		return letter(e, m.Header, m.Body), nil
	}
	if e.Part == secondPart {
		e, o, m, n = o, e, n, m
	}
	e.join(o.parts[0])
	return letter(e, m.Header, append(slices.Clip(m.Body), n.Body...)), nil
}

// mate is the sequence of the other part of an entry, 0 if there is none: next to it, where it nearly always is, or anywhere.
func (s *Service) mate(ctx context.Context, e *Entry) (uint64, error) {
	state, err := s.conn.StreamState(ctx, e.DLQStream)
	if err != nil {
		return 0, err
	}
	for _, r := range []jetstream.Scan{
		{Stream: e.DLQStream, From: max(e.Seq, lookBack+1) - lookBack, To: min(e.Seq+lookBack, state.Last)},
		{Stream: e.DLQStream, From: 1, To: state.Last},
	} {
		p := &pairs{}
		for m, err := range s.conn.ScanHeaders(ctx, r) {
			if err != nil {
				return 0, err
			}
			if o, ok := parse(e.DLQStream, m); ok && o.Part != "" && o.letterKey() == e.letterKey() {
				p.add(o)
			}
		}
		if mate, ok := p.mate[e.Seq]; ok {
			return mate.seq, nil
		}
	}
	return 0, nil
}

func letter(e *Entry, header map[string][]string, body []byte) *Letter {
	if header == nil {
		header = map[string][]string{}
	}
	if body == nil {
		body = []byte{}
	}
	l := &Letter{Entry: *e, Headers: header}
	l.setBody(body)
	return l
}
