// Package config answers what the sidecar was told to do: defaults, then a file, then the environment, checked
// strictly and all at once. Each part of the configuration is the Config of the package that uses it.
package config

import (
	"time"

	"github.com/jetsidecar/jetsidecar/dedupe"
	"github.com/jetsidecar/jetsidecar/forward"
	"github.com/jetsidecar/jetsidecar/jetstream"
	"github.com/jetsidecar/jetsidecar/policy"
)

// Config is the whole configuration.
//
// Tags: koanf is the key. enum lists the values. unit:"bytes" is a size. secret says what is never shown: "file"
// the value, which may also come from a file by the key with _file; "true" the value; "value" the values of a map;
// "url" user and password inside URLs. part is a key below koanf's: fields of the same koanf key are parts of one map, which may also
// be given as the value of its first part; then the others hold their zero value.
type Config struct {
	// NATS is how to reach NATS.
	NATS jetstream.Config `koanf:"nats"`
	// App is where the app is and how to speak to it.
	App forward.Config `koanf:"app"`
	// Consumers are the durable consumers to serve, at least one.
	Consumers []Consumer `koanf:"consumers"`
	// Defaults holds any key of a consumer and applies to all of them, below the consumer's own keys. After
	// loading it is already part of each consumer.
	Defaults Consumer `koanf:"defaults"`
	// Admin is the listener for health, metrics, the web page and its API.
	Admin Admin `koanf:"admin"`
	// Log is what is logged and how.
	Log Log `koanf:"log"`
	// ShutdownTimeout bounds a stop: how long requests in flight may finish and verdicts be confirmed.
	ShutdownTimeout time.Duration `koanf:"shutdown_timeout"`
}

// Consumer is one durable consumer and what is done with its messages.
type Consumer struct {
	// Stream is the source stream. Required.
	Stream string `koanf:"stream"`
	// Durable is the consumer's name on the server. Required.
	Durable string `koanf:"durable"`
	// FilterSubjects are the subjects to receive; empty means all of the stream.
	FilterSubjects []string `koanf:"filter_subjects"`
	// Manage says what the sidecar may do to the durable: create makes it if it is missing, update also applies
	// changes the server allows, none makes no create or update call.
	Manage string `koanf:"manage" enum:"create,update,none"`
	// DeliverPolicy is where a durable made here begins: all, new, last, last_per_subject, an RFC 3339 time of 1970 to 2262 or a
	// stream sequence.
	DeliverPolicy string `koanf:"deliver_policy" scalar:"any"`
	// AckWait is how long the server waits for a verdict before it delivers again, at least 1s. Leases are kept
	// alive, so a message may take longer.
	AckWait time.Duration `koanf:"ack_wait"`
	// MaxAckPending is the most messages the server has out at once, those waiting for a retry included.
	MaxAckPending int `koanf:"max_ack_pending"`
	// Replicas of a durable made here; 0 means as many as the stream has.
	Replicas int `koanf:"replicas"`
	// Path is joined to app.url.
	Path string `koanf:"path"`
	// Method is the HTTP method: POST, PUT or PATCH.
	Method string `koanf:"method" enum:"POST,PUT,PATCH"`
	// Format is how a message becomes a request: raw (as it is), cloudevents (a CloudEvent in binary mode: attributes in headers)
	// or cloudevents-json (in structured mode: all of it in the body).
	Format string `koanf:"format" enum:"raw,cloudevents,cloudevents-json"`
	// Concurrency is the most requests in flight, 1 to 10000: a number, or {max: 64, adaptive: true} to find out how many the app can
	// take. With order: stream it is 1, also by default.
	Concurrency int `koanf:"concurrency" part:"max"`
	// Adaptive lets the sidecar find out how many requests at a time the app can take, from 1 to concurrency.max: more only while
	// that gets more done, fewer when the app is overloaded. Without it there may always be that many.
	Adaptive bool `koanf:"concurrency" part:"adaptive"`
	// Prefetch is the most messages leased beyond those in flight; 0 means none.
	Prefetch int `koanf:"prefetch"`
	// MaxBytes is the most bytes leased; one message is always allowed.
	MaxBytes int64 `koanf:"max_bytes" unit:"bytes"`
	// Order is what must not overtake: none (anything may), subject (messages of the same subject), header:<Name> (those with the
	// same value of a header, named as published; those without it may overtake) or stream (nothing may: one request at a time).
	Order string `koanf:"order"`
	// MaxDeliver is the most attempts, the first one counted; 0 means no limit.
	MaxDeliver int `koanf:"max_deliver"`
	// MaxAge dead-letters a message that is older than this when it would be retried; 0s means never.
	MaxAge time.Duration `koanf:"max_age"`
	// Ack is how verdicts are sent: confirmed (sent again until the server confirms) or async (sent once).
	Ack string `koanf:"ack" enum:"confirmed,async"`
	// Retry is the retry schedule.
	Retry policy.RetryConfig `koanf:"retry"`
	// RetryStream is where messages wait for a retry that would hold too much of max_ack_pending.
	RetryStream jetstream.RetryStreamConfig `koanf:"retry_stream"`
	// Status says which HTTP statuses mean which verdict.
	Status policy.StatusConfig `koanf:"status"`
	// Breaker stops pulling while the app fails message after message.
	Breaker policy.BreakerConfig `koanf:"breaker"`
	// Rate is the most requests a second of this sidecar, of this consumer, which may be below 1 (0.5 is one in two seconds); 0 means no
	// limit. It counts retries and the breaker's probes. What waits for it is leased, and neither app.timeout nor an attempt is spent.
	Rate float64 `koanf:"rate"`
	// DLQ is where dead letters go.
	DLQ jetstream.DeadLetterConfig `koanf:"dlq"`
	// Dedupe is how a message already answered is recognized.
	Dedupe dedupe.Config `koanf:"dedupe"`
	// Batch sends several messages in one request.
	Batch jetstream.BatchConfig `koanf:"batch"`
}

// Admin is the listener for health, metrics, the web page and its API.
type Admin struct {
	// Listen is the address of the listener, host:port; port 0 takes any free port.
	Listen string `koanf:"listen"`
	// Token guards the web page, the API and /debug/pprof/: Authorization: Bearer with it is asked for. Without it they are there
	// on a loopback listener only. Health and metrics need none.
	Token string `koanf:"token" secret:"file"`
	// PProf serves Go profiles under /debug/pprof/, with the token or on a loopback listener only.
	PProf bool `koanf:"pprof"`
}

// Log is what is logged and how.
type Log struct {
	// Level is the least level logged.
	Level string `koanf:"level" enum:"debug,info,warn,error"`
	// Format is text or json; auto means text on a terminal and JSON otherwise.
	Format string `koanf:"format" enum:"auto,text,json"`
}
