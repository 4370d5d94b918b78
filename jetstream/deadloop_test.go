package jetstream

import (
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestFed(t *testing.T) {
	const pattern = "dlq.S.d.>"
	from := func(s natsjs.StreamSource) natsjs.StreamConfig {
		return natsjs.StreamConfig{Subjects: []string{"s.>"}, Sources: []*natsjs.StreamSource{&s}}
	}
	for name, c := range map[string]struct {
		republish *natsjs.RePublish
		source    natsjs.StreamConfig
		as        string
	}{
		"nothing":                     {nil, from(natsjs.StreamSource{Name: "OTHER"}), ""},
		"republished there":           {&natsjs.RePublish{Source: "dlq.>", Destination: "s.dead.>"}, from(natsjs.StreamSource{Name: "OTHER"}), "s.dead.>"},
		"all of it":                   {&natsjs.RePublish{Destination: "s.>"}, from(natsjs.StreamSource{Name: "OTHER"}), "s.>"},
		"on a subject that is mapped": {&natsjs.RePublish{Source: "dlq.*.*.*", Destination: "{{wildcard(3)}}.$2"}, from(natsjs.StreamSource{Name: "OTHER"}), "*.*"},
		"elsewhere":                   {&natsjs.RePublish{Source: "dlq.>", Destination: "t.>"}, from(natsjs.StreamSource{Name: "OTHER"}), ""},
		"others":                      {&natsjs.RePublish{Source: "dlq.OTHER.>", Destination: "s.>"}, from(natsjs.StreamSource{Name: "OTHER"}), ""},
		"a source":                    {nil, from(natsjs.StreamSource{Name: "S_DLQ"}), pattern},
		"a source of others":          {nil, from(natsjs.StreamSource{Name: "S_DLQ", FilterSubject: "dlq.OTHER.>"}), ""},
		"a source elsewhere":          {nil, from(natsjs.StreamSource{Name: "S_DLQ", External: &natsjs.ExternalStream{APIPrefix: "$JS.x.API"}}), ""},
		"a source that is mapped":     {nil, from(natsjs.StreamSource{Name: "S_DLQ", SubjectTransforms: []natsjs.SubjectTransformConfig{{}}}), ">"},
	} {
		if why, as := fed(natsjs.StreamConfig{Name: "S_DLQ", RePublish: c.republish}, c.source, pattern); as != c.as || (why == "") != (as == "") {
			t.Errorf("%s: %q, as %q, want as %q", name, why, as, c.as)
		}
	}
}

// A check and a start say what is wrong with a DLQ stream that feeds the source stream, and with one in memory. One whose dead letters the durable
// does not take is used.
func TestCheckOfALoopAndOfMemory(t *testing.T) {
	republish := &natsjs.RePublish{Source: ">", Destination: "s.dead.>"}
	for name, c := range map[string]struct {
		dlq    natsjs.StreamConfig
		filter string
		level  Level
		detail string
		fit    bool
	}{
		"a loop":            {natsjs.StreamConfig{RePublish: republish}, "s.>", Failed, "republishes dead letters to s.dead.>", false},
		"it does not close": {natsjs.StreamConfig{RePublish: republish}, "s.a", OK, "0 entries", true},
		"in memory":         {natsjs.StreamConfig{Storage: natsjs.MemoryStorage}, "s.a", Warning, "it is kept in memory", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, natsjs.StreamConfig{})
			b.must(b.js.CreateConsumer(b.ctx, "S", natsjs.ConsumerConfig{Durable: "d", AckPolicy: natsjs.AckExplicitPolicy, FilterSubject: c.filter}))
			d := testLetters(b.conn)
			c.dlq.Name, c.dlq.Subjects, c.dlq.Duplicates = d.name, []string{d.pattern}, DeadLetterWindow
			b.must(b.js.CreateStream(b.ctx, c.dlq))
			k := &checker{conn: b.conn, cfg: b.config(), dlq: d.cfg}
			var err error
			k.source, err = b.conn.streamInfo(b.ctx, "S")
			b.must(nil, err)
			k.deadLetters(b.ctx)
			if f := k.findings[0]; f.Level != c.level || !strings.Contains(f.Detail, c.detail) {
				t.Errorf("%+v", f)
			}
			if err := d.Ensure(b.ctx); (err == nil) != c.fit {
				t.Errorf("it is used: %v", err)
			}
		})
	}
}
