package jetstream

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
)

// unadvised is what it means that the advisories cannot be read.
const unadvised = "without it messages that the server gives up on cannot be found, and on a limits stream they are lost"

// advisories looks at what finding the messages needs that the server gives up on. With manage: none that is something only where the
// durable has a limit on deliveries; else one may be given it later.
func (k *checker) advisories(ctx context.Context) {
	none := k.cfg.Manage == ManageNone
	if none && !k.limited {
		return
	}
	s, what := NewSource(k.conn, k.cfg, k.conn.log), "stream "+AdvisoryStream
	info, err := k.conn.streamInfo(ctx, AdvisoryStream)
	missing := errors.Is(err, ErrStreamNotFound)
	switch {
	case missing && none:
		k.add(Warning, what, "it does not exist", "create it with subject "+advisorySubject+">: "+unadvised)
	case missing:
	case err != nil:
		k.add(Warning, what, err.Error(), "check that the user may publish to "+k.conn.prefix+"STREAM.INFO."+AdvisoryStream+": "+unadvised)
	case k.source != nil:
		if why := unfitAdvisories(info.Config, s.advisories(), k.source.Config.Replicas); why != "" {
			k.add(Warning, what, why, "change it: some of the messages that the server gives up on may not be found")
		}
		if none && (info.Config.DenyDelete || info.Config.Sealed) {
			k.add(Warning, what, "nothing can be removed from it (deny_delete or sealed), so with manage: none it cannot be used", "make it anew without")
		}
	}
	var denied []string
	for _, msg := range s.advisoryRequests(none, missing) {
		if !k.mayPublish(ctx, msg) {
			denied = append(denied, "publish to "+msg.Subject)
		}
	}
	if len(denied) > 0 {
		k.add(Warning, what, "the user may not "+strings.Join(denied, ", nor "), "grant these permissions: "+unadvised)
	}
}

// advisoryRequests are requests that reading the advisories needs, such that the server refuses them for their content.
func (s *Source) advisoryRequests(none, missing bool) []*nats.Msg {
	p, bad := s.conn.prefix, []byte("?")
	if none {
		return []*nats.Msg{
			{Subject: p + "STREAM.MSG.GET." + AdvisoryStream, Data: bad},
			{Subject: p + "STREAM.MSG.DELETE." + AdvisoryStream, Data: bad},
		}
	}
	durable := s.advisoryConsumer().Durable
	msgs := []*nats.Msg{
		{Subject: p + "CONSUMER.INFO." + AdvisoryStream + "." + durable},
		{Subject: p + "CONSUMER.CREATE." + AdvisoryStream + "." + durable + "." + s.advisories(), Data: bad},
		{Subject: p + "CONSUMER.MSG.NEXT." + AdvisoryStream + "." + durable, Data: []byte(`{"batch":-1}`)},
		{Subject: "$JS.ACK." + AdvisoryStream + "." + durable + ".1.0.0.0.0", Data: []byte("+WPI")},
	}
	if missing {
		msgs = append(msgs, &nats.Msg{Subject: p + "STREAM.CREATE." + AdvisoryStream, Data: bad})
	}
	return msgs
}
