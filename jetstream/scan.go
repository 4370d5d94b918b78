package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// scanBatch is how many messages one request of a scan asks for; two requests are open at a time.
	scanBatch = 256
	// scanExpires is how long a request waits at the server: only at the end of a scan whose last message went meanwhile.
	scanExpires = time.Second
	// scanSilence is how long nothing may come before the scan goes on with a consumer made anew.
	scanSilence = 4 * time.Second
	// scanFilter is the longest filter that is sent in the subject of a request, and may be held against permissions there: a server closes a connection
	// over a line that is too long.
	scanFilter = 255
	// scanTries is how often in a row a scan is begun anew without a message in between.
	scanTries = 3
)

// Scan says which messages of a stream to read.
type Scan struct {
	Stream   string
	Subjects []string  // patterns that do not overlap; none: all
	From, To uint64    // sequences, both included
	Since    time.Time // begin with what was stored then; looked at only if From is at most 1
}

// ScanHeaders reads messages in the order of the stream, without their bodies. It reads by a consumer of its own that needs no
// acks and is gone afterwards; messages are told from control messages by their reply subject, never by their headers.
func (c *Conn) ScanHeaders(ctx context.Context, s Scan) iter.Seq2[*Stored, error] {
	return func(yield func(*Stored, error) bool) {
		from := max(s.From, 1)
		for tries := 0; from <= s.To; tries++ {
			s.From = from
			r := scanner{conn: c, scan: s}
			err := r.run(ctx, func(m *Stored) bool {
				tries = 0
				from = m.Seq + 1
				return yield(m, nil)
			})
			switch {
			case r.done:
				return
			case ctx.Err() != nil:
				yield(nil, ctx.Err())
				return
			case errors.Is(err, ErrStreamNotFound), errors.Is(err, ErrNotConnected), tries >= scanTries:
				yield(nil, fmt.Errorf("reading stream %s: %w", s.Stream, err))
				return
			}
		}
	}
}

// scanner is one consumer's part of a scan.
type scanner struct {
	conn     *Conn
	scan     Scan
	inbox    string
	consumer string
	open     int    // messages that were asked for and did not come yet
	received uint64 // consumer sequence of the last one
	done     bool   // the scan is through, or nobody wants more
}

var (
	errScanSilent = errors.New("the server fell silent")
	errScanGap    = errors.New("a message was lost on the way")
)

// run reads until the scan is done, or something is in the way of which a new consumer may know nothing.
func (r *scanner) run(ctx context.Context, yield func(*Stored) bool) error {
	pending, err := r.create(ctx)
	if err != nil {
		return err
	}
	defer r.remove()
	if r.done = pending == 0; r.done {
		return nil
	}
	r.inbox = r.conn.nc().NewInbox()
	messages := make(chan *nats.Msg, 4*scanBatch)
	sub, err := r.conn.nc().ChanSubscribe(r.inbox, messages)
	if err != nil {
		return err
	}
	defer r.conn.unsubscribe(sub)
	if err := errors.Join(r.request(), r.request()); err != nil {
		return err
	}
	silence := time.NewTicker(scanSilence)
	defer silence.Stop()
	for heard := true; !r.done; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-silence.C:
			if !heard {
				return errScanSilent
			}
			heard = false
		case msg := <-messages:
			heard = true
			if err := r.receive(ctx, msg, yield); err != nil {
				return err
			}
		}
	}
	return nil
}

// create makes the consumer and returns how much it will bring.
func (r *scanner) create(ctx context.Context) (pending uint64, err error) {
	if !r.conn.Connected() {
		return 0, ErrNotConnected
	}
	cfg := natsjs.ConsumerConfig{
		Description: "reads headers", AckPolicy: natsjs.AckNonePolicy, HeadersOnly: true,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute, MaxWaiting: 16,
		DeliverPolicy: natsjs.DeliverByStartSequencePolicy, OptStartSeq: r.scan.From,
	}
	if r.scan.From <= 1 && !r.scan.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = natsjs.DeliverByStartTimePolicy, 0, &r.scan.Since
	}
	if len(r.scan.Subjects) == 1 && len(r.scan.Subjects[0]) <= scanFilter {
		cfg.FilterSubject = r.scan.Subjects[0]
	} else {
		cfg.FilterSubjects = r.scan.Subjects
	}
	ctx, cancel := r.conn.bounded(ctx, apiTimeout)
	defer cancel()
	consumer, err := r.conn.js().CreateConsumer(ctx, r.scan.Stream, cfg)
	switch {
	case errors.Is(err, natsjs.ErrStreamNotFound):
		return 0, ErrStreamNotFound
	case err != nil && errors.Is(context.Cause(ctx), ErrNotConnected):
		return 0, ErrNotConnected
	case err != nil:
		return 0, apiError("making a consumer to read with", err)
	}
	r.consumer = consumer.CachedInfo().Name
	return consumer.CachedInfo().NumPending, nil
}

// remove takes the consumer away. If that does not succeed the server does so after a minute.
func (r *scanner) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.conn.js().DeleteConsumer(ctx, r.scan.Stream, r.consumer)
}

func (r *scanner) request() error {
	r.open += scanBatch
	subject := r.conn.prefix + "CONSUMER.MSG.NEXT." + r.scan.Stream + "." + r.consumer
	body := `{"batch":` + strconv.Itoa(scanBatch) + `,"expires":` + strconv.FormatInt(int64(scanExpires), 10) + `}`
	return r.conn.nc().PublishRequest(subject, r.inbox, []byte(body))
}

func (r *scanner) receive(ctx context.Context, msg *nats.Msg, yield func(*Stored) bool) error {
	if !fromJetStream(msg) {
		return r.control(ctx, msg)
	}
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	if meta.Sequence.Consumer != r.received+1 {
		return errScanGap
	}
	r.received++
	r.open--
	if meta.Sequence.Stream > r.scan.To {
		r.done = true
		return nil
	}
	m := &Stored{Seq: meta.Sequence.Stream, Time: meta.Timestamp, Subject: msg.Subject, Header: msg.Header}
	m.takeSize()
	if !yield(m) || meta.NumPending == 0 || m.Seq == r.scan.To {
		r.done = true
		return nil
	}
	if r.open <= scanBatch {
		return r.request()
	}
	return nil
}

// control is told what the server says of a request: it expired because there was less than it asked for, or the consumer is gone.
func (r *scanner) control(ctx context.Context, msg *nats.Msg) error {
	if status := msg.Header.Get("Status"); status != "408" {
		return fmt.Errorf("status %s %s", status, oneLine(msg.Header.Get("Description"), 200))
	}
	info, err := r.conn.consumerInfo(ctx, r.scan.Stream, r.consumer)
	if err != nil {
		return err
	}
	if info.NumPending == 0 && info.Delivered.Consumer == r.received {
		r.done = true
		return nil
	}
	if left := msg.Header.Get("Nats-Pending-Messages"); left != "" {
		if n, err := strconv.Atoi(left); err == nil {
			r.open -= n
		}
	}
	if r.open <= scanBatch {
		return r.request()
	}
	return nil
}

// takeSize takes the header away in which the server says how large the body is that it left out: the last of this name. A
// message whose header block cannot be parsed does not tell.
func (m *Stored) takeSize() {
	const name = "Nats-Msg-Size"
	values := m.Header[name]
	if len(values) == 0 {
		m.HeaderLost = true
		return
	}
	m.Size, _ = strconv.ParseInt(values[len(values)-1], 10, 64)
	if values = slices.Clip(values[:len(values)-1]); len(values) == 0 {
		delete(m.Header, name)
	} else {
		m.Header[name] = values
	}
	if len(m.Header) == 0 {
		m.Header = nil
	}
}
