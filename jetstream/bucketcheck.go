package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// CheckBucket looks at everything that using a dedupe bucket needs, and changes nothing.
func (c *Conn) CheckBucket(ctx context.Context, cfg BucketConfig) []Finding {
	k := &checker{conn: c}
	b := NewBucket(c, cfg, c.log)
	what := "dedupe bucket " + cfg.Name
	info, err := c.streamInfo(ctx, b.stream)
	missing := errors.Is(err, ErrStreamNotFound)
	switch {
	case missing && cfg.Manage == ManageNone:
		k.add(Failed, what, "it does not exist", "create it, or let the sidecar do so with manage: create; messages flow without it")
	case missing:
		k.add(OK, what, "it does not exist yet; the sidecar will create it", "")
	case err != nil:
		k.add(Failed, what, err.Error(), "check that the user may publish to "+c.prefix+"STREAM.INFO."+b.stream)
	case !info.Config.AllowDirect:
		k.add(Failed, what, errNoDirect.Error(), "turn allow_direct on")
	case info.Config.MaxAge != cfg.TTL:
		k.add(Warning, what, fmt.Sprintf("its ttl is %s, configured %s", info.Config.MaxAge, cfg.TTL), "the bucket is used as it is; nats stream edit "+b.stream+" changes it")
	default:
		k.add(OK, what, fmt.Sprintf("%d keys", info.State.Msgs), "")
	}

	var denied []string
	try := func(msg *nats.Msg) {
		if !k.mayPublish(ctx, msg) {
			denied = append(denied, "publish to "+msg.Subject)
		}
	}
	try(&nats.Msg{Subject: b.get + "check"})
	try(&nats.Msg{Subject: b.put + "check", Header: nats.Header{natsjs.ExpectedStreamHeader: {"no-such-stream"}}})
	if missing && cfg.Manage != ManageNone {
		try(&nats.Msg{Subject: c.prefix + "STREAM.CREATE." + b.stream, Data: []byte("?")})
	}
	if len(denied) > 0 {
		k.add(Failed, "permissions for "+what, "the user may not "+strings.Join(denied, ", nor "), "grant these permissions")
	}
	return k.findings
}
