package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Manage says what the sidecar may do with the durable.
type Manage string

// What the sidecar may do with the durable.
const (
	ManageCreate Manage = "create" // make it if it is missing, never change it
	ManageUpdate Manage = "update" // also change one that differs
	ManageNone   Manage = "none"   // neither create nor update
)

// Start says where a durable made here begins.
type Start struct {
	Policy natsjs.DeliverPolicy
	Seq    uint64    // for DeliverByStartSequencePolicy
	Time   time.Time // for DeliverByStartTimePolicy
}

// ConsumerConfig is one durable and how it is served.
type ConsumerConfig struct {
	Stream         string
	Durable        string
	FilterSubjects []string
	Manage         Manage
	Start          Start
	AckWait        time.Duration
	MaxAckPending  int
	Replicas       int
	Concurrency    int   // messages in work at most
	Batched        bool  // those are requests times messages of each
	Prefetch       int   // leased beyond those
	MaxBytes       int64 // leased bytes at most; one message is always allowed
	AckAsync       bool  // send each verdict once, unconfirmed
	RetryStream    RetryStreamConfig
	Ordered        bool // offer messages so that their order can be kept, and let the server pin the durable to one sidecar; no retry stream then
}

// incarnation tells a stream and durable from ones of the same names made later.
type incarnation struct {
	stream, consumer time.Time // when each was created
}

func (i incarnation) same(as incarnation) bool {
	return i.stream.Equal(as.stream) && i.consumer.Equal(as.consumer)
}

// key is what tells it from others in metadata.
func (i incarnation) key() string {
	return fmt.Sprintf("%d.%d", i.stream.UnixNano(), i.consumer.UnixNano())
}

// binding is a durable as it was found.
type binding struct {
	incarnation
	asked     time.Time // before the server was asked for it
	took      time.Duration
	info      *natsjs.ConsumerInfo
	kept      int      // replicas of the stream
	unmatched []string // filters that no subject of the stream matches
}

// wanted is the durable as the configuration describes it: no server-side limit on deliveries and no BackOff, so
// that a crash in the last delivery still gets its message redelivered.
func (c *ConsumerConfig) wanted() natsjs.ConsumerConfig {
	w := natsjs.ConsumerConfig{
		Durable:       c.Durable,
		AckPolicy:     natsjs.AckExplicitPolicy,
		AckWait:       c.AckWait,
		MaxDeliver:    -1,
		MaxAckPending: c.MaxAckPending,
		Replicas:      c.Replicas,
		DeliverPolicy: c.Start.Policy,
	}
	switch c.Start.Policy {
	case natsjs.DeliverByStartSequencePolicy:
		w.OptStartSeq = c.Start.Seq
	case natsjs.DeliverByStartTimePolicy:
		t := c.Start.Time
		w.OptStartTime = &t
	}
	switch len(c.FilterSubjects) {
	case 0:
		if c.Start.Policy == natsjs.DeliverLastPerSubjectPolicy {
			w.FilterSubjects = []string{">"} // the server asks for one
		}
	case 1:
		w.FilterSubject = c.FilterSubjects[0]
	default:
		w.FilterSubjects = c.FilterSubjects
	}
	if c.Ordered {
		w.PriorityPolicy, w.PriorityGroups, w.PinnedTTL = natsjs.PriorityPolicyPinned, []string{pinGroup}, pinTTL
	}
	return w
}

// wanted is the durable as it is made on this server.
func (s *Source) wanted() natsjs.ConsumerConfig {
	w := s.cfg.wanted()
	if s.conn.olderThan(2, 11) {
		w.PriorityPolicy, w.PriorityGroups, w.PinnedTTL = natsjs.PriorityPolicyNone, nil, 0
	}
	return w
}

// bindOnce finds the durable, makes or updates it where that is allowed, and refuses one that cannot be served.
func (s *Source) bindOnce(ctx context.Context) (*binding, error) {
	if s.due != nil {
		if err := s.due.ensure(ctx); err != nil {
			return nil, err
		}
	}
	stream, err := s.conn.streamInfo(ctx, s.cfg.Stream)
	if err != nil {
		return nil, err
	}
	asked := time.Now()
	info, err := s.conn.consumerInfo(ctx, s.cfg.Stream, s.cfg.Durable)
	took := time.Since(asked)
	if errors.Is(err, ErrConsumerNotFound) && s.cfg.Manage != ManageNone {
		if s.stood {
			s.stood = false
			s.pause(ctx) // it was deleted just now, perhaps
			return s.bindOnce(ctx)
		}
		info, err = s.create(ctx, stream)
	}
	if err == nil && s.cfg.Manage == ManageUpdate {
		info, err = s.update(ctx, info) // also what another sidecar made just now
	}
	if err == nil && stateless(info, stream.Config.Replicas) {
		err = fmt.Errorf("looking up durable %s of stream %s: %w", s.cfg.Durable, s.cfg.Stream, errStateless)
	}
	if err == nil {
		err = s.sameStream(ctx, stream)
	}
	if err != nil {
		return nil, err
	}
	s.stood = true
	if why := s.refusal(info); why != "" {
		return nil, fmt.Errorf("%w: %s", ErrRefused, why)
	}
	if info.Created.Equal(s.goesOn.consumer) && !stream.Created.Equal(s.goesOn.stream) {
		return nil, fmt.Errorf("%w: %s", ErrRefused, whyMisplaced)
	}
	if s.cfg.Stream != AdvisoryStream && s.due == nil {
		// Before the first pull: from then on the server may give up on messages, if the durable has a limit or is given one.
		if err := s.ensureAdvisories(ctx, stream.Config); err != nil {
			s.conn.complain("advisories "+s.cfg.Durable, "messages that the server gives up on may not be found",
				slog.String("stream", s.cfg.Stream), slog.String("consumer", s.cfg.Durable), slog.String("error", oneLine(err.Error(), 300)))
		}
	}
	s.stood = false // whoever serves it pauses once it is lost
	return &binding{
		incarnation: incarnation{stream.Created, info.Created}, asked: asked, took: took, info: info, kept: stream.Config.Replicas,
		unmatched: unmatched(filters(info.Config), stream),
	}, nil
}

// sameStream returns an error if the stream was made anew since it was looked up: what was learned since is of another one.
func (s *Source) sameStream(ctx context.Context, stream *natsjs.StreamInfo) error {
	now, err := s.conn.streamInfo(ctx, s.cfg.Stream)
	if err == nil && !now.Created.Equal(stream.Created) {
		err = fmt.Errorf("looking up durable %s of stream %s: %w", s.cfg.Durable, s.cfg.Stream, errStreamAnew)
	}
	return err
}

var (
	errStreamAnew = errors.New("the stream was made anew meanwhile")
	errStateless  = errors.New("no server tells its state: one was restarted, or nobody leads it yet")
)

const whyMisplaced = "it was made here just as the stream was made anew, starts where the one in the old stream was to go on, and would skip what is before: delete it"

// stateless reports whether an answer has no state in it that counts: a server that keeps a replica of the durable and was restarted gives none, until it
// runs that replica, though another leads the durable, and an old one until there is a leader (nats-server jetstream_api.go, jsConsumerInfoRequest).
// All others in a cluster say who leads. kept is how many replicas there are of its stream.
func stateless(info *natsjs.ConsumerInfo, kept int) bool {
	if replicated(info) && info.Cluster.Leader == "" {
		return true
	}
	counts := info.Delivered.Consumer + info.Delivered.Stream + info.AckFloor.Stream + info.NumPending
	return info.Cluster == nil && max(kept, info.Config.Replicas) > 1 && counts == 0 && info.NumAckPending == 0 && info.NumWaiting == 0
}

// create makes the durable. One that vanished while this process served it continues after the ack floor last seen;
// a work queue has in it just what is not done.
func (s *Source) create(ctx context.Context, stream *natsjs.StreamInfo) (*natsjs.ConsumerInfo, error) {
	if err := s.sameStream(ctx, stream); err != nil {
		return nil, err
	}
	want := s.wanted()
	goesOn := s.lastSeen != nil && s.lastSeen.stream.Equal(stream.Created)
	if last := s.lastSeen; goesOn {
		want.OptStartSeq, want.OptStartTime = 0, nil
		if stream.Config.Retention == natsjs.LimitsPolicy {
			want.DeliverPolicy, want.OptStartSeq = natsjs.DeliverByStartSequencePolicy, last.floor+1
		} else {
			want.DeliverPolicy = natsjs.DeliverAllPolicy
		}
	}
	ctx, cancel := s.conn.bounded(ctx, apiTimeout)
	defer cancel()
	cons, err := s.conn.js().CreateConsumer(ctx, s.cfg.Stream, want)
	if errors.Is(err, natsjs.ErrConsumerExists) {
		return s.conn.consumerInfo(ctx, s.cfg.Stream, s.cfg.Durable) // another sidecar made it just now
	}
	if err != nil {
		return nil, fmt.Errorf("creating durable %s: %w", s.cfg.Durable, err)
	}
	if s.lives.told() {
		s.log.Info("created the durable", slog.String("start", startText(want)))
	}
	if want.DeliverPolicy == natsjs.DeliverByStartSequencePolicy && goesOn {
		s.goesOn = incarnation{stream.Created, cons.CachedInfo().Created}
	}
	return cons.CachedInfo(), nil
}

func startText(c natsjs.ConsumerConfig) string {
	switch c.DeliverPolicy {
	case natsjs.DeliverByStartSequencePolicy:
		return fmt.Sprintf("sequence %d", c.OptStartSeq)
	case natsjs.DeliverByStartTimePolicy:
		return c.OptStartTime.Format(time.RFC3339)
	default:
		return c.DeliverPolicy.String()
	}
}

// update changes what differs and may be changed: everything but where the durable started.
func (s *Source) update(ctx context.Context, info *natsjs.ConsumerInfo) (*natsjs.ConsumerInfo, error) {
	pin := s.cfg.Ordered && pinned(info.Config) == "" && !s.conn.olderThan(2, 11)
	unpin := !s.cfg.Ordered && pinned(info.Config) == pinGroup
	if len(changeable(Differences(info.Config, s.cfg))) == 0 && !pin && !unpin || refusal(info) != "" {
		return info, nil
	}
	want, w := info.Config, s.wanted()
	want.FilterSubject, want.FilterSubjects = w.FilterSubject, w.FilterSubjects
	want.AckWait, want.MaxAckPending, want.MaxDeliver, want.BackOff = w.AckWait, w.MaxAckPending, w.MaxDeliver, nil
	if w.Replicas != 0 {
		want.Replicas = w.Replicas
	}
	if pinned(w) != "" && pinned(want) == "" {
		want.PriorityPolicy, want.PriorityGroups, want.PinnedTTL = w.PriorityPolicy, w.PriorityGroups, w.PinnedTTL
	}
	if unpin {
		want.PriorityPolicy, want.PriorityGroups, want.PinnedTTL = natsjs.PriorityPolicyNone, nil, 0
	}
	ctx, cancel := s.conn.bounded(ctx, apiTimeout)
	defer cancel()
	cons, err := s.conn.js().UpdateConsumer(ctx, s.cfg.Stream, want)
	if err != nil {
		s.log.Warn("the durable differs from the configuration and could not be updated", slog.String("error", err.Error()))
		return info, nil
	}
	s.log.Info("updated the durable to the configuration")
	return cons.CachedInfo(), nil
}

// refusal says why a durable cannot be served rightly, or nothing.
func refusal(info *natsjs.ConsumerInfo) string {
	c := info.Config
	switch {
	case c.DeliverSubject != "":
		return "it is a push consumer; the sidecar pulls"
	case c.AckPolicy != natsjs.AckExplicitPolicy:
		return fmt.Sprintf("its ack policy is %s; it must be explicit", c.AckPolicy)
	case c.HeadersOnly:
		return "it delivers headers only; the app would get empty bodies"
	case len(c.PriorityGroups) > 0 && pinned(c) == "":
		return "it has priority groups of another kind than pinned_client, which are not supported"
	}
	return ""
}

// refusal says why the source cannot serve a durable rightly, or nothing. What else than its own copies that of the retry stream would bring must not be
// settled there.
func (s *Source) refusal(info *natsjs.ConsumerInfo) string {
	why := refusal(info)
	switch want := filters(s.cfg.wanted()); {
	case why != "" || s.due == nil:
	case !slices.Equal(filters(info.Config), want):
		why = fmt.Sprintf("its filter subjects are %v; they must be %v", filters(info.Config), want)
	case len(info.Config.PriorityGroups) > 0:
		why = "it has priority groups; that of the retry stream must have none"
	}
	return why
}

// Difference is one field in which a durable differs from the configuration.
type Difference struct {
	Field, Server, Configured string
}

// String is the difference in words.
func (d Difference) String() string {
	return fmt.Sprintf("%s is %s on the server, configured %s", d.Field, d.Server, d.Configured)
}

// startFields cannot be changed on a durable that exists.
const startFields = "deliver_policy"

func changeable(ds []Difference) []Difference {
	return slices.DeleteFunc(slices.Clone(ds), func(d Difference) bool { return d.Field == startFields })
}

// Differences lists the fields in which a durable differs from the configuration.
func Differences(have natsjs.ConsumerConfig, cfg ConsumerConfig) []Difference {
	want := cfg.wanted()
	var ds []Difference
	add := func(differs bool, field string, server, configured any) {
		if differs {
			ds = append(ds, Difference{field, fmt.Sprint(server), fmt.Sprint(configured)})
		}
	}
	hf, wf := filters(have), filters(want)
	add(!slices.Equal(hf, wf), "filter_subjects", hf, wf)
	add(startText(have) != startText(want), startFields, startText(have), startText(want))
	add(have.AckWait != want.AckWait && len(have.BackOff) == 0, "ack_wait", have.AckWait, want.AckWait)
	add(have.MaxAckPending != want.MaxAckPending, "max_ack_pending", have.MaxAckPending, want.MaxAckPending)
	add(want.Replicas != 0 && have.Replicas != want.Replicas, "replicas", have.Replicas, want.Replicas)
	add(have.MaxDeliver > 0, "max_deliver (the server's)", have.MaxDeliver, "no limit")
	add(len(have.BackOff) > 0, "backoff", have.BackOff, "none")
	return ds
}

func filters(c natsjs.ConsumerConfig) []string {
	fs := slices.Clone(c.FilterSubjects)
	if c.FilterSubject != "" {
		fs = append(fs, c.FilterSubject)
	}
	slices.Sort(fs)
	return fs
}

// warnings are what an operator should know of a durable that is served.
func (s *Source) warnings(b *binding) []string {
	var ws []string
	for _, d := range Differences(b.info.Config, s.cfg) {
		ws = append(ws, d.String())
	}
	if w := s.conn.unpinned(s.cfg, b.info.Config); w != "" {
		ws = append(ws, w)
	}
	if w := fewMayWait(s.cfg, b.info.Config); w != "" {
		ws = append(ws, w)
	}
	if !s.cfg.Ordered && s.due == nil && pinned(b.info.Config) != "" {
		ws = append(ws, "it is pinned to one client at a time (priority group "+pinned(b.info.Config)+"): of several sidecars one works; manage: update takes the sidecar's own group away where there is no order")
	}
	for _, f := range b.unmatched {
		ws = append(ws, "its filter subject "+f+" matches none of the stream's subjects: nothing will come")
	}
	if len(b.info.Config.BackOff) > 0 {
		ws = append(ws, "its BackOff distorts the delays of retries")
	}
	if w := fewMayBeLeased(s.cfg, b.info.Config); w != "" {
		ws = append(ws, w)
	}
	return ws
}

// fewMayBeLeased warns of a durable that lets fewer messages be leased than the configuration, or is empty.
func fewMayBeLeased(cfg ConsumerConfig, have natsjs.ConsumerConfig) string {
	leases, sum := cfg.Concurrency+cfg.Prefetch, "concurrency + prefetch"
	if have.MaxAckPending <= 0 || have.MaxAckPending >= leases {
		return ""
	}
	if cfg.Batched {
		sum = "concurrency × batch.max_messages + prefetch"
	}
	return fmt.Sprintf("max_ack_pending %d is less than %s (%d), so it bounds what is leased", have.MaxAckPending, sum, leases)
}

// longestWait is the longest time that a durable is taken to wait for a verdict: sums and doubles of it do not wrap around.
const longestWait = 100 * 365 * 24 * time.Hour

// ackWait is the shortest time the server waits for a verdict: with a BackOff, its shortest step.
func ackWait(c natsjs.ConsumerConfig) time.Duration {
	d := c.AckWait
	for _, b := range c.BackOff {
		if d <= 0 || b < d {
			d = b
		}
	}
	if d <= 0 {
		d = 30 * time.Second
	}
	return min(d, longestWait)
}

// takenBackAfter is the longest time until the server takes a delivery back that nobody heard of: with a BackOff, its longest step.
func takenBackAfter(c natsjs.ConsumerConfig) time.Duration {
	return min(max(ackWait(c), slices.Max(append(c.BackOff[:len(c.BackOff):len(c.BackOff)], c.AckWait))), longestWait)
}

func (c *Conn) streamInfo(ctx context.Context, stream string) (*natsjs.StreamInfo, error) {
	var info natsjs.StreamInfo
	if err := c.inquire(ctx, "STREAM.INFO."+stream, &info); err != nil {
		return nil, apiError(fmt.Sprintf("looking up stream %s", stream), err)
	}
	return &info, nil
}

func (c *Conn) consumerInfo(ctx context.Context, stream, durable string) (*natsjs.ConsumerInfo, error) {
	var info natsjs.ConsumerInfo
	if err := c.inquire(ctx, "CONSUMER.INFO."+stream+"."+durable, &info); err != nil {
		return nil, apiError(fmt.Sprintf("looking up durable %s of stream %s", durable, stream), err)
	}
	return &info, nil
}

var errUnanswered = errors.New("no answer from JetStream")

// apiError puts the sentinels of this package into an error of the JetStream API.
func apiError(doing string, err error) error {
	var api *natsjs.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode == natsjs.JSErrCodeStreamNotFound:
		return fmt.Errorf("%s: %w", doing, ErrStreamNotFound)
	case errors.As(err, &api) && api.ErrorCode == natsjs.JSErrCodeConsumerNotFound:
		return fmt.Errorf("%s: %w", doing, ErrConsumerNotFound)
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%s: JetStream does not answer (not enabled for this account, or no leader now)", doing)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%s: %w within %s (it may be starting, or the user may lack permission)", doing, errUnanswered, apiTimeout)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

// gone reports whether the error says for sure that the stream or durable is not there.
func gone(err error) bool {
	return errors.Is(err, ErrStreamNotFound) || errors.Is(err, ErrConsumerNotFound)
}

// oneLine makes s fit one line of a log or header: control characters become spaces, invalid UTF-8 becomes '?', and
// at most n bytes are kept.
func oneLine(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if len(s) > n {
		for n > 0 && s[n]&0xc0 == 0x80 {
			n--
		}
		s = strings.TrimSpace(s[:n])
	}
	return s
}
