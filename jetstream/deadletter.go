package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// DeadLetterWindow is the duplicate window of a DLQ stream made here: within it an entry that is stored again, after a
// crash between the DLQ's confirmation and the term, is stored once.
const DeadLetterWindow = time.Hour

// putTimeout bounds one try to store an entry.
const putTimeout = 5 * time.Second

// DeadLetter is why a message is moved to the DLQ.
type DeadLetter struct {
	Message *Message
	// Deliveries is how often the message had been delivered when it was decided.
	Deliveries uint64
	Reason     string // one word, see package policy
	Status     int    // HTTP status; 0 if there was no answer
	Error      string // error, or what the app gave as Sidecar-Reason
	Response   []byte // the start of the app's answer
	FailedAt   time.Time
}

// DeadLetters stores the dead letters of one consumer.
type DeadLetters struct {
	conn             *Conn
	cfg              DeadLetterConfig
	source, consumer string // the source stream and its durable
	name, pattern    string // the DLQ stream and the subjects of it that belong to this source stream
	log              *slog.Logger

	mu      sync.Mutex
	detail  string // why the stream cannot take an entry; empty when it can, as far as its state tells
	tries   outcomes
	misfit  bool   // what is published would not get to the DLQ stream or not stay there, or it was not looked up yet
	maxMsg  int    // the DLQ stream's limit, 0 if none
	drops   string // the limits by which the DLQ stream drops entries; empty: none
	short   string // why an entry may be there twice, by the stream's duplicate window; empty: it is long enough
	forgets string // why its entries may be lost; empty: they are in files
	level   level
	causes  map[string]int // entries stored by this process, by reason
}

// level is how many entries a DLQ stream has: as looked up, and what was stored since.
type level struct {
	created       time.Time // of the stream; zero until it was looked up
	entries, last uint64    // as looked up: the number of entries, and the last sequence
	stored        uint64    // the highest sequence of an entry stored here
}

// looked takes a look at the stream.
func (l *level) looked(info *natsjs.StreamInfo) {
	if !info.Created.Equal(l.created) {
		l.created, l.stored = info.Created, 0
	}
	l.entries, l.last = info.State.Msgs, info.State.LastSeq
}

// depth counts an entry that was stored while the look was under way once: by its sequence.
func (l *level) depth() uint64 {
	if l.created.IsZero() || l.stored <= l.last {
		return l.entries
	}
	return l.entries + l.stored - l.last
}

// NewDeadLetters prepares to store the dead letters of a stream's durable.
func NewDeadLetters(conn *Conn, cfg DeadLetterConfig, stream, durable string, log *slog.Logger) *DeadLetters {
	d := &DeadLetters{conn: conn, cfg: cfg, source: stream, consumer: durable, log: log, detail: "not looked up yet", misfit: true, causes: map[string]int{}, tries: outcomes{denied: map[string]time.Time{}}}
	d.name = DeadLetterStream(cfg, stream, durable)
	d.pattern = DeadLetterPattern(cfg, stream)
	return d
}

// DeadLetterStream is the name of the DLQ stream of a durable.
func DeadLetterStream(cfg DeadLetterConfig, stream, durable string) string {
	return strings.NewReplacer("{stream}", stream, "{consumer}", durable).Replace(cfg.Stream)
}

// DeadLetterPattern is the subject pattern under which the DLQ stream listens for a source stream's dead letters.
func DeadLetterPattern(cfg DeadLetterConfig, stream string) string {
	return strings.NewReplacer("{stream}", stream, "{consumer}", "*", "{subject}", ">").Replace(cfg.Subject)
}

// Stream is the name of the DLQ stream.
func (d *DeadLetters) Stream() string { return d.name }

// State reports whether the DLQ can take an entry, as far as is known, why not, and how many entries it has. If it can, the detail is of an
// entry that is refused for its own subject or size, if there is one.
func (d *DeadLetters) State() (ok bool, detail string, depth uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.detail != "" {
		return false, d.detail, d.level.depth()
	}
	ok, detail = d.tries.state(time.Now())
	return ok, detail, d.level.depth()
}

func detailOf(err error) string {
	if err == nil {
		return ""
	}
	return oneLine(err.Error(), 300)
}

// Ensure makes the DLQ stream if it is missing, and adds its subjects to one that exists, where the configuration
// allows; else it only looks whether the stream is there and listens.
func (d *DeadLetters) Ensure(ctx context.Context) error {
	err := d.ensure(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.detail = detailOf(err)
	d.misfit = errors.As(err, new(misfit))
	return err
}

// misfit says that the DLQ stream does not listen where dead letters are published: nothing is published then, since another stream may take it. If
// that is the source stream, a dead letter would be delivered again as a message, become a dead letter again, and so on. It also says that the DLQ
// stream does not keep what it confirms.
type misfit struct{ error }

func (m misfit) Unwrap() error { return m.error }

func (d *DeadLetters) ensure(ctx context.Context) error {
	began := time.Now()
	source, sourceErr := d.conn.streamInfo(ctx, d.source)
	if sourceErr == nil {
		if s := capturing(source.Config.Subjects, d.pattern); s != "" {
			return misfit{fmt.Errorf("the subject %s of the source stream captures the dead letters on %s: change dlq.subject", s, d.pattern)}
		}
	}
	info, err := d.conn.streamInfo(ctx, d.name)
	switch {
	case errors.Is(err, ErrStreamNotFound) && d.cfg.Create:
		info, err = d.create(ctx)
	case errors.Is(err, ErrStreamNotFound):
		err = misfit{err}
	case err == nil && keepsEntries(info.Config) != nil:
		return keepsEntries(info.Config)
	case err == nil && !listens(info.Config.Subjects, d.pattern) && d.cfg.Create:
		info, err = d.addSubjects(ctx, info.Config)
	}
	if err != nil {
		return err
	}
	if err := keepsEntries(info.Config); err != nil {
		return err // somebody else made it just now
	}
	if !listens(info.Config.Subjects, d.pattern) {
		return misfit{fmt.Errorf("DLQ stream %s does not listen on %s", d.name, d.pattern)}
	}
	if info.Config.Sealed {
		return fmt.Errorf("DLQ stream %s is sealed", d.name)
	}
	if sourceErr == nil {
		if why := d.feeds(ctx, info.Config, source.Config); why != "" {
			return misfit{fmt.Errorf("DLQ stream %s is not used: %s", d.name, why)}
		}
	}
	d.mu.Lock()
	d.maxMsg = max(int(info.Config.MaxMsgSize), 0)
	d.level.looked(info)
	if roomy(info) {
		d.tries.roomSeen(began)
	}
	d.mu.Unlock()
	d.warnDropping(info.Config)
	d.warnShortWindow(info.Config)
	d.warnForgetful(info.Config)
	return full(info)
}

// full reports that a DLQ stream has reached a limit at which it refuses entries.
func full(info *natsjs.StreamInfo) error {
	c, st := info.Config, info.State
	if c.Discard == natsjs.DiscardNew && (c.MaxBytes > 0 && st.Bytes >= uint64(c.MaxBytes) || c.MaxMsgs > 0 && st.Msgs >= uint64(c.MaxMsgs)) {
		return fmt.Errorf("DLQ stream %s is full: %d entries, %d bytes", c.Name, st.Msgs, st.Bytes)
	}
	return nil
}

func (d *DeadLetters) create(ctx context.Context) (*natsjs.StreamInfo, error) {
	replicas := d.cfg.Replicas
	if replicas == 0 {
		source, err := d.conn.streamInfo(ctx, d.source)
		if errors.Is(err, ErrStreamNotFound) {
			return nil, ErrNoSource
		}
		if err != nil {
			return nil, err
		}
		replicas = source.Config.Replicas
	}
	maxBytes := d.cfg.MaxBytes
	if maxBytes == 0 {
		maxBytes = -1
	}
	d.conn.making.Lock()
	defer d.conn.making.Unlock()
	if info, err := d.conn.streamInfo(ctx, d.name); !errors.Is(err, ErrStreamNotFound) {
		return info, err // another consumer of this process made it just now
	}
	stream, err := d.conn.createStream(ctx, natsjs.StreamConfig{
		Name:        d.name,
		Description: "dead letters of " + d.source,
		Subjects:    []string{d.pattern},
		Storage:     natsjs.FileStorage,
		Discard:     natsjs.DiscardNew,
		MaxAge:      d.cfg.MaxAge,
		MaxBytes:    maxBytes,
		Replicas:    max(replicas, 1),
		AllowDirect: true,
		Duplicates:  d.window(),
	})
	if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) {
		return d.conn.streamInfo(ctx, d.name) // another sidecar made it just now
	}
	if err != nil {
		return nil, misfit{fmt.Errorf("creating DLQ stream %s: %w", d.name, err)}
	}
	d.log.Info("created the dlq stream", slog.String("dlq_stream", d.name), slog.String("subjects", d.pattern))
	return stream.CachedInfo(), nil
}

// window is the duplicate window of a DLQ stream made here.
func (d *DeadLetters) window() time.Duration {
	if d.cfg.MaxAge > 0 {
		return min(DeadLetterWindow, d.cfg.MaxAge)
	}
	return DeadLetterWindow
}

// addSubjects makes an existing DLQ stream listen on the pattern too. Subjects that the pattern includes are taken out:
// a stream's subjects must not overlap.
func (d *DeadLetters) addSubjects(ctx context.Context, cfg natsjs.StreamConfig) (*natsjs.StreamInfo, error) {
	cfg.Subjects = slices.DeleteFunc(slices.Clone(cfg.Subjects), func(s string) bool { return includes(d.pattern, s) })
	cfg.Subjects = append(cfg.Subjects, d.pattern)
	ctx, cancel := d.conn.bounded(ctx, apiTimeout)
	defer cancel()
	stream, err := d.conn.js().UpdateStream(ctx, cfg)
	if err != nil {
		return nil, misfit{fmt.Errorf("adding subject %s to DLQ stream %s: %w", d.pattern, d.name, err)}
	}
	d.log.Info("added a subject to the dlq stream", slog.String("dlq_stream", d.name), slog.String("subject", d.pattern))
	return stream.CachedInfo(), nil
}

// capturing is the first of a stream's subjects that would take some of what is published on the pattern; empty if none would.
func capturing(subjects []string, pattern string) string {
	for _, s := range subjects {
		if overlap(s, pattern) {
			return s
		}
	}
	return ""
}

func listens(subjects []string, pattern string) bool {
	return slices.ContainsFunc(subjects, func(s string) bool { return includes(s, pattern) })
}

// includes reports whether every subject that matches pattern b matches pattern a.
func includes(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i, t := range as {
		switch {
		case t == ">":
			return len(bs) > i
		case i >= len(bs), bs[i] == ">":
			return false
		case t != "*" && t != bs[i]:
			return false
		}
	}
	return len(as) == len(bs)
}

// Put stores a dead letter and returns once the DLQ stream confirmed it, with the number of original headers that were
// left out. Storing the same dead letter again, within the stream's duplicate window, stores nothing.
func (d *DeadLetters) Put(ctx context.Context, dl DeadLetter) (dropped int, err error) {
	_, dropped, err = d.PutAt(ctx, dl)
	return dropped, err
}

// PutAt is Put that also returns the entry's sequence in the DLQ stream, of its first part if there are two.
func (d *DeadLetters) PutAt(ctx context.Context, dl DeadLetter) (seq uint64, dropped int, err error) {
	began := time.Now()
	seq, dropped, err = d.put(ctx, dl)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tries.note(try{dl.Message.Sequence, d.subject(dl.Message.Subject), began, time.Now()}, err)
	if err == nil {
		d.causes[dl.Reason]++
	}
	return seq, dropped, err
}

func (d *DeadLetters) put(ctx context.Context, dl DeadLetter) (seq uint64, dropped int, err error) {
	d.mu.Lock()
	amiss := d.misfit
	d.mu.Unlock()
	if amiss {
		if err := d.Ensure(ctx); errors.As(err, new(misfit)) {
			return 0, 0, err
		}
	}
	d.mu.Lock()
	limit := int(d.conn.mostPayload())
	if d.maxMsg > 0 {
		limit = min(limit, d.maxMsg)
	}
	d.mu.Unlock()
	msgs, dropped, err := d.entries(dl, limit)
	if err != nil {
		return 0, 0, err
	}
	for i, msg := range msgs {
		at, err := d.publish(ctx, msg)
		switch {
		case err != nil && i > 0:
			return 0, 0, fmt.Errorf("%w: %w", err, ErrUnsure) // a part is
		case err != nil:
			return 0, 0, err
		case i == 0:
			seq = at
		}
	}
	return seq, dropped, nil
}

func (d *DeadLetters) publish(ctx context.Context, msg *nats.Msg) (seq uint64, err error) {
	if !d.conn.Connected() {
		return 0, ErrNotConnected
	}
	ctx, cancel := d.conn.bounded(ctx, putTimeout)
	defer cancel()
	unrefused, answered := d.conn.untilRefused(ctx, msg.Subject)
	ack, err := d.conn.publish(unrefused, msg)
	cause := context.Cause(unrefused)
	answered(err)
	switch {
	case errors.Is(err, ErrUnpublishable):
		return 0, ownRefusal{fmt.Errorf("storing in DLQ stream %s: %w", d.name, err)}
	case err != nil && errors.Is(cause, ErrNotConnected):
		return 0, fmt.Errorf("%w: %w", ErrNotConnected, ErrUnsure)
	case err != nil && errors.Is(cause, ErrDenied):
		return 0, ownRefusal{fmt.Errorf("storing in DLQ stream %s: %w", d.name, deniedSubject(msg.Subject))}
	case errors.Is(err, natsjs.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return 0, fmt.Errorf("storing in DLQ stream %s: no stream listens on %s", d.name, msg.Subject)
	case errors.Is(err, context.DeadlineExceeded):
		return 0, fmt.Errorf("storing in DLQ stream %s: not confirmed within %s, %w", d.name, putTimeout, ErrUnsure)
	case isOfEntry(err):
		return 0, ownRefusal{fmt.Errorf("storing in DLQ stream %s: %s: %w", d.name, msg.Subject, err)}
	case err != nil:
		return 0, fmt.Errorf("storing in DLQ stream %s: %w", d.name, err)
	case ack.Stream != d.name:
		return 0, fmt.Errorf("storing in DLQ stream %s: stream %s took it", d.name, ack.Stream)
	case ack.Duplicate:
		return d.publishAgain(ctx, msg, ack.Sequence)
	}
	d.mu.Lock()
	d.level.stored = max(d.level.stored, ack.Sequence)
	d.mu.Unlock()
	return ack.Sequence, nil
}

// publishAgain is told that the server takes an entry for one that it stored at a sequence, lately. If that one was removed since, the entry is
// stored under another id: the same whenever this is done. A user who may not ask takes the server's word.
func (d *DeadLetters) publishAgain(ctx context.Context, msg *nats.Msg, at uint64) (seq uint64, err error) {
	if d.conn.denied(d.conn.prefix + "STREAM.MSG.GET." + d.name) {
		return at, nil
	}
	there, err := d.conn.Stored(ctx, d.name, at)
	switch {
	case err != nil && d.conn.denied(d.conn.prefix+"STREAM.MSG.GET."+d.name):
		return at, nil
	case err != nil:
		return 0, fmt.Errorf("storing in DLQ stream %s: it is there, or was removed: %w, %w", d.name, err, ErrUnsure)
	case there != nil && slices.Equal(there.Header[natsjs.MsgIDHeader], msg.Header[natsjs.MsgIDHeader]):
		return at, nil
	}
	again := &nats.Msg{Subject: msg.Subject, Data: msg.Data, Header: maps.Clone(msg.Header)}
	again.Header[natsjs.MsgIDHeader] = []string{msg.Header.Get(natsjs.MsgIDHeader) + ":" + strconv.FormatUint(at, 10)}
	return d.publish(ctx, again)
}

// id is the same whenever the same dead letter is stored.
func (d *DeadLetters) id(m *Message, replays int, part string) string {
	b := make([]byte, 0, 96)
	b = append(b, d.source...)
	b = append(append(b, ':'), d.consumer...)
	b = strconv.AppendUint(append(b, ':'), m.Sequence, 10)
	b = strconv.AppendInt(append(b, ':'), m.Stored.UnixNano(), 10)
	if replays > 0 {
		b = strconv.AppendInt(append(b, ':'), int64(replays), 10)
	}
	if part != "" {
		b = append(append(b, ':'), part...)
	}
	return string(b)
}

// DeadLetterSubjects are the patterns of the entries of a durable (empty: all) whose original subject matches a pattern (empty:
// all). Entries whose original subject was too long for the DLQ's are among them, whatever their subject.
func DeadLetterSubjects(cfg DeadLetterConfig, stream, durable, subject string) []string {
	if durable == "" {
		durable = "*"
	}
	fill := func(subject string) string {
		return strings.NewReplacer("{stream}", stream, "{consumer}", durable, "{subject}", subject).Replace(cfg.Subject)
	}
	if subject == "" || subject == ">" {
		return []string{fill(">")}
	}
	if includes(subject, longSubject+".*") {
		return []string{fill(subject)}
	}
	return []string{fill(subject), fill(longSubject + ".*")}
}

// SubjectsOverlap reports whether some subject matches both patterns.
func SubjectsOverlap(a, b string) bool { return overlap(a, b) }
