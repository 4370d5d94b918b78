// Package dedupe remembers which messages were already answered, so that a redelivery is not sent to the app again.
package dedupe

import "time"

// Config is how a consumer dedupes.
type Config struct {
	// Store is where answered messages are remembered: memory (this process), kv (also a JetStream key-value bucket, shared by all sidecars and lasting) or off.
	Store string `koanf:"store" enum:"memory,kv,off"`
	// TTL is how long an answered message is remembered, at least 100ms.
	TTL time.Duration `koanf:"ttl"`
	// MaxEntries bounds the memory store; the oldest entry makes room. An entry costs at most 64 bytes.
	MaxEntries int `koanf:"max_entries"`
	// Bucket is the key-value bucket of store kv, made if it is missing. It has one ttl, that of dedupe.
	Bucket string `koanf:"bucket"`
	// Header is the message header whose value identifies a message.
	Header string `koanf:"header"`
}
