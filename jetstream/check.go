package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Level says how bad a finding is.
type Level string

// The levels of a finding.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Failed  Level = "failed"
)

// Finding is the result of one check.
type Finding struct {
	Level  Level
	What   string // what was checked
	Detail string // what was found
	Advice string // what to do about it; empty when there is nothing to do
}

// AwaitConnection waits for the connection, at most for the time given.
func (c *Conn) AwaitConnection(ctx context.Context, most time.Duration) Finding {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !c.Connected() {
		select {
		case <-ctx.Done():
			return Finding{Failed, "nats", "no connection within " + most.String() + ": " + c.Trouble(), "check nats.urls, the credentials and TLS, and that a server listens there"}
		case <-look.C:
		}
	}
	return Finding{OK, "nats", fmt.Sprintf("connected to %s, version %s", c.nc().ConnectedAddr(), c.nc().ConnectedServerVersion()), ""}
}

// CheckJetStream looks whether JetStream is off, for the account or the server. Then there is nothing else to check.
func (c *Conn) CheckJetStream(ctx context.Context) (off Finding, yes bool) {
	var answer struct{}
	err := c.api(ctx, "INFO", nil, &answer)
	var refused *natsjs.APIError
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return Finding{Failed, "jetstream", "no server answers for JetStream: it is off, or not in this domain", "enable JetStream on the server, or correct nats.domain and nats.api_prefix"}, true
	case errors.As(err, &refused) && (refused.ErrorCode == natsjs.JSErrCodeJetStreamNotEnabledForAccount || refused.ErrorCode == natsjs.JSErrCodeJetStreamNotEnabled):
		return Finding{Failed, "jetstream", "JetStream is not enabled for this account", "enable it for the account on the server, or use another account"}, true
	default:
		return Finding{}, false // what may not be asked is not told by this
	}
}

// Check looks at everything that serving a durable needs, and changes nothing.
func (c *Conn) Check(ctx context.Context, cfg ConsumerConfig, dlq DeadLetterConfig) []Finding {
	k := &checker{conn: c, cfg: cfg, dlq: dlq}
	if k.stream(ctx) {
		k.durable(ctx)
	}
	if dlq.Enabled {
		k.deadLetters(ctx)
	}
	k.permissions(ctx)
	k.advisories(ctx)
	return k.findings
}

type checker struct {
	conn     *Conn
	cfg      ConsumerConfig
	dlq      DeadLetterConfig
	source   *natsjs.StreamInfo
	missing  bool // the durable
	limited  bool // it has a limit on deliveries
	findings []Finding
}

func (k *checker) add(level Level, what, detail, advice string) {
	k.findings = append(k.findings, Finding{level, what, oneLine(detail, 500), advice})
}

func (k *checker) stream(ctx context.Context) bool {
	what := "stream " + k.cfg.Stream
	info, err := k.conn.streamInfo(ctx, k.cfg.Stream)
	switch {
	case errors.Is(err, ErrStreamNotFound):
		k.add(Failed, what, "it does not exist", "create it, or correct the key stream; the sidecar waits for it and never makes it")
	case err != nil:
		k.add(Failed, what, err.Error(), "check that JetStream is enabled and that the user may publish to "+k.conn.prefix+"STREAM.INFO."+k.cfg.Stream)
	default:
		k.source = info
		k.add(OK, what, fmt.Sprintf("%d messages, retention %s, replicas %d", info.State.Msgs, strings.ToLower(info.Config.Retention.String()), info.Config.Replicas), "")
	}
	return err == nil
}

func (k *checker) durable(ctx context.Context) {
	what := fmt.Sprintf("durable %s of stream %s", k.cfg.Durable, k.cfg.Stream)
	info, err := k.conn.consumerInfo(ctx, k.cfg.Stream, k.cfg.Durable)
	switch {
	case errors.Is(err, ErrConsumerNotFound) && k.cfg.Manage == ManageNone:
		k.missing = true
		k.add(Failed, what, "it does not exist", "create it, or let the sidecar do so with manage: create")
		return
	case errors.Is(err, ErrConsumerNotFound):
		k.missing = true
		k.filters(what, k.cfg.FilterSubjects)
		k.add(OK, what, "it does not exist yet; the sidecar will create it", "")
		return
	case err != nil:
		k.add(Failed, what, err.Error(), "check that the user may publish to "+k.conn.prefix+"CONSUMER.INFO."+k.cfg.Stream+"."+k.cfg.Durable)
		return
	}
	k.limited = info.Config.MaxDeliver > 0
	if why := refusal(info); why != "" {
		k.add(Failed, what, why, "change the durable on the server, or name another one")
		return
	}
	k.filters(what, filters(info.Config))
	k.add(OK, what, fmt.Sprintf("%d pending, %d waiting for an ack", info.NumPending, info.NumAckPending), "")
	for _, d := range Differences(info.Config, k.cfg) {
		k.add(Warning, what, d.String(), adviceOn(d, k.cfg.Manage))
	}
	if why := fewMayBeLeased(k.cfg, info.Config); why != "" && (k.cfg.Manage != ManageUpdate || info.Config.MaxAckPending == k.cfg.MaxAckPending) {
		k.add(Warning, what, why, "raise max_ack_pending on the server, or here with manage: update; or lease less")
	}
	if why := k.conn.unpinned(k.cfg, info.Config); why != "" {
		k.add(Warning, what, why, "make the durable anew, or let the sidecar change it with manage: update, on nats-server 2.11 or later")
	}
	if why := fewMayWait(k.cfg, info.Config); why != "" {
		k.add(Warning, what, why, "make the durable anew with a larger max_waiting, which cannot be changed; 512 is the server's default")
	}
}

// filters warns of filter subjects that no message of the stream can have.
func (k *checker) filters(what string, subjects []string) {
	for _, f := range unmatched(subjects, k.source) {
		k.add(Warning, what, "the filter subject "+f+" matches none of the stream's subjects: nothing will come", "correct filter_subjects")
	}
}

// unmatched are the filters that no subject of the stream's messages matches, as far as these are known.
func unmatched(filters []string, stream *natsjs.StreamInfo) []string {
	subjects := storedSubjects(stream.Config)
	if len(subjects) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(filters), func(f string) bool {
		return slices.ContainsFunc(subjects, func(s string) bool { return overlap(f, s) })
	})
}

func adviceOn(d Difference, manage Manage) string {
	switch {
	case d.Field == startFields:
		return "it only matters when the durable is made; nothing to do"
	case manage == ManageUpdate:
		return "the sidecar will change it"
	default:
		return "the server's value is used; manage: update changes it"
	}
}

func (k *checker) deadLetters(ctx context.Context) {
	d := NewDeadLetters(k.conn, k.dlq, k.cfg.Stream, k.cfg.Durable, k.conn.log)
	what := "dlq stream " + d.name
	if k.source != nil {
		if s := capturing(k.source.Config.Subjects, d.pattern); s != "" {
			k.add(Failed, what, fmt.Sprintf("the source stream's subject %s would capture the dead letters on %s", s, d.pattern), "change dlq.subject")
			return
		}
	}
	info, err := k.conn.streamInfo(ctx, d.name)
	switch {
	case errors.Is(err, ErrStreamNotFound) && k.dlq.Create:
		k.add(OK, what, "it does not exist yet; the sidecar will create it for "+d.pattern, "")
		if limit := k.conn.windowLimit(ctx, d.name, d.window()); limit > 0 {
			k.add(Warning, what, fmt.Sprintf("the server limits duplicate windows to %s, wanted %s", limit, d.window()), "it will have a window of the limit: raise the server's limits.duplicate_window, or an entry that is stored again later may be stored twice")
		}
	case errors.Is(err, ErrStreamNotFound):
		k.add(Failed, what, "it does not exist", "create it for subject "+d.pattern+", or let the sidecar do so with dlq.create: true")
	case err != nil:
		k.add(Failed, what, err.Error(), "check that the user may publish to "+k.conn.prefix+"STREAM.INFO."+d.name)
	case unkept(info.Config) != "":
		k.add(Failed, what, unkept(info.Config), "make it anew with retention: limits and acks, or change dlq.stream")
	case info.Config.Sealed:
		k.add(Failed, what, "it is sealed: it takes no entries", "make it anew, or change dlq.stream")
	case k.source != nil && d.feeds(ctx, info.Config, k.source.Config) != "":
		k.add(Failed, what, d.feeds(ctx, info.Config, k.source.Config), "take that off, or let it lead elsewhere")
	case !listens(info.Config.Subjects, d.pattern) && k.dlq.Create:
		k.add(OK, what, "the sidecar will add the subject "+d.pattern, "")
	case !listens(info.Config.Subjects, d.pattern):
		k.add(Failed, what, "it does not listen on "+d.pattern, "add the subject, or let the sidecar do so with dlq.create: true")
	case full(info) != nil:
		k.add(Failed, what, full(info).Error(), "remove entries or raise its limits")
	case dropping(info.Config, k.dlq) != "":
		k.add(Warning, what, "it drops entries by its limits: "+dropping(info.Config, k.dlq), "take these limits off, or use discard: new")
	case forgetful(info.Config) != "":
		k.add(Warning, what, forgetful(info.Config), "make it anew with file storage")
	case shortWindow(info.Config) != "":
		k.add(Warning, what, shortWindow(info.Config), "raise its duplicate window: the sidecar makes such a stream with an hour")
	default:
		k.add(OK, what, fmt.Sprintf("%d entries", info.State.Msgs), "")
	}
}

// permissions tries what serving needs with requests that the server refuses for their content before they change anything.
func (k *checker) permissions(ctx context.Context) {
	s, d := k.cfg.Stream, k.cfg.Durable
	what := fmt.Sprintf("permissions for durable %s of stream %s", d, s)
	p := k.conn.prefix
	var denied []string
	try := func(msg *nats.Msg) {
		if !k.mayPublish(ctx, msg) {
			denied = append(denied, "publish to "+msg.Subject)
		}
	}
	try(&nats.Msg{Subject: p + "CONSUMER.MSG.NEXT." + s + "." + d, Data: []byte(`{"batch":-1}`)})
	try(&nats.Msg{Subject: "$JS.ACK." + s + "." + d + ".1.0.0.0.0", Data: []byte("+WPI")})
	if k.missing && k.cfg.Manage != ManageNone {
		create := p + "CONSUMER.CREATE." + s + "." + d
		if len(k.cfg.FilterSubjects) == 1 {
			create += "." + k.cfg.FilterSubjects[0]
		}
		try(&nats.Msg{Subject: create, Data: []byte("?")})
	}
	if k.dlq.Enabled {
		dl := NewDeadLetters(k.conn, k.dlq, s, d, k.conn.log)
		try(&nats.Msg{Subject: dl.subject("check"), Header: nats.Header{natsjs.ExpectedStreamHeader: {"no-such-stream"}}})
		if k.dlq.Create {
			try(&nats.Msg{Subject: p + "STREAM.CREATE." + dl.name, Data: []byte("?")})
		}
	}
	if !k.maySubscribe(nats.NewInbox()) {
		denied = append(denied, "subscribe to _INBOX.>")
	}
	if len(denied) > 0 {
		k.add(Failed, what, "the user may not "+strings.Join(denied, ", nor "), "grant these permissions")
	} else {
		k.add(OK, what, "pulling, acking and dead-lettering are allowed", "")
	}
	if get := p + "STREAM.MSG.GET." + s; !k.mayPublish(ctx, &nats.Msg{Subject: get, Data: []byte("?")}) {
		k.add(Warning, what, "the user may not publish to "+get, "grant it: without it messages that the server gives up on cannot be dead-lettered")
	}
	if k.cfg.RetryStream.Enabled && !k.conn.olderThan(2, 12) && k.retry() {
		k.add(Warning, what, "the user may not use the stream "+RetryStream, "grant it: without it new messages have to wait when messages that wait for a retry hold all of max_ack_pending")
	}
	k.retriesFit(ctx)
	if k.mark() {
		k.add(Warning, what, "the user may not use the bucket "+StateBucket, "grant it: without it a message that kills its process again and again is never dead-lettered")
	}
	for _, advisory := range [][2]string{{"DELETED", "a deleted durable"}, {"LEADER_ELECTED", "another leader of the durable"}} {
		if subject := "$JS.EVENT.ADVISORY.CONSUMER." + advisory[0] + "." + s + "." + d; !k.maySubscribe(subject) {
			k.add(Warning, what, "the user may not subscribe to "+subject, "grant it, so that "+advisory[1]+" is noticed at once; without it that takes a moment")
		}
	}
}

// mark reports whether the marks of crash loops cannot be kept.
func (k *checker) mark() bool {
	ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	p := k.conn.prefix
	for _, msg := range []*nats.Msg{
		{Subject: "$KV." + StateBucket + ".check", Header: nats.Header{natsjs.ExpectedStreamHeader: {"no-such-stream"}}},
		{Subject: p + "STREAM.INFO.KV_" + StateBucket},
	} {
		if !k.mayPublish(ctx, msg) {
			return true
		}
	}
	return k.cfg.Manage != ManageNone && !k.mayPublish(ctx, &nats.Msg{Subject: p + "STREAM.CREATE.KV_" + StateBucket, Data: []byte("?")})
}

// retry reports whether messages cannot wait in the retry stream.
func (k *checker) retry() bool {
	ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	p := k.conn.prefix
	msgs := []*nats.Msg{
		{Subject: retrySubject + "check", Header: nats.Header{natsjs.ExpectedStreamHeader: {"no-such-stream"}}},
		{Subject: p + "STREAM.INFO." + RetryStream},
		{Subject: p + "STREAM.MSG.GET." + RetryStream, Data: []byte("?")},
	}
	if k.cfg.Manage != ManageNone {
		msgs = append(msgs, &nats.Msg{Subject: p + "STREAM.CREATE." + RetryStream, Data: []byte("?")})
	}
	return slices.ContainsFunc(msgs, func(msg *nats.Msg) bool { return !k.mayPublish(ctx, msg) })
}

// retriesFit warns of a retry stream that nothing of this stream is moved to.
func (k *checker) retriesFit(ctx context.Context) {
	if !k.cfg.RetryStream.Enabled || k.source == nil {
		return
	}
	info, err := k.conn.streamInfo(ctx, RetryStream)
	if err != nil {
		return // not made yet, or said above
	}
	if why := unfitRetries(info.Config, keptBy(k.source.Config)); why != "" {
		k.add(Warning, "stream "+RetryStream, why, "change it; until then retries wait at the durable and hold its max_ack_pending (manage: update raises its replicas)")
	}
}

// mayPublish reports whether a publish is allowed. The server tells of a violation before it answers the flush.
func (k *checker) mayPublish(ctx context.Context, msg *nats.Msg) bool {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	msg.Reply = nats.NewInbox()
	if k.conn.nc().PublishMsg(msg) != nil {
		return false
	}
	return k.allowed(ctx, fmt.Sprintf("Publish to %q", msg.Subject))
}

func (k *checker) maySubscribe(subject string) bool {
	sub, err := k.conn.nc().SubscribeSync(subject)
	if err != nil {
		return false
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a connection that is closed
	ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	return k.allowed(ctx, fmt.Sprintf("Subscription to %q", subject))
}

func (k *checker) allowed(ctx context.Context, operation string) bool {
	if k.conn.nc().FlushWithContext(ctx) != nil {
		return false
	}
	// The violation is handed to the error handler by a goroutine of its own; a barrier there comes after it.
	done := make(chan struct{})
	if k.conn.nc().Barrier(func() { close(done) }) == nil {
		<-done
	}
	err := k.conn.nc().LastError()
	return err == nil || !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(operation))
}

// overlap reports whether some subject matches both patterns.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; i < len(as) && i < len(bs); i++ {
		switch {
		case as[i] == ">" || bs[i] == ">":
			return true
		case as[i] != "*" && bs[i] != "*" && as[i] != bs[i]:
			return false
		}
	}
	return len(as) == len(bs)
}
