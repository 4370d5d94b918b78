// Package jetstream is the only package that speaks to NATS: it connects, leases messages from durable pull
// consumers, settles them, and stores dead letters.
package jetstream

import "time"

// Config is how to reach NATS.
type Config struct {
	// URLs are the servers to connect to.
	URLs []string `koanf:"urls" secret:"url"`
	// Name is the connection's name, as the server shows it.
	Name string `koanf:"name"`
	// User authenticates, with password. Instead of them exactly one of token, creds_file and nkey_seed_file may be given.
	User string `koanf:"user"`
	// Password belongs to user.
	Password string `koanf:"password" secret:"file"`
	// Token authenticates by a shared token.
	Token string `koanf:"token" secret:"file"`
	// CredsFile is a credentials file (JWT and seed).
	CredsFile string `koanf:"creds_file"`
	// NkeySeedFile is a file with an nkey seed.
	NkeySeedFile string `koanf:"nkey_seed_file"`
	// TLS is how to speak TLS to the servers.
	TLS TLSConfig `koanf:"tls"`
	// Domain is the JetStream domain.
	Domain string `koanf:"domain"`
	// APIPrefix replaces $JS.API as the prefix of the JetStream API, for imports from another account.
	APIPrefix string `koanf:"api_prefix"`
}

// TLSConfig is how to speak TLS to NATS.
type TLSConfig struct {
	// CAFile is a PEM file with the certificate authorities to trust; empty means the system's.
	CAFile string `koanf:"ca_file"`
	// CertFile is the client's certificate (PEM).
	CertFile string `koanf:"cert_file"`
	// KeyFile is the client's key (PEM).
	KeyFile string `koanf:"key_file"`
	// ServerName is the name expected in the server's certificate; empty means the host of the URL.
	ServerName string `koanf:"server_name"`
	// HandshakeFirst speaks TLS before the server's INFO.
	HandshakeFirst bool `koanf:"handshake_first"`
}

// DeadLetterConfig is where dead letters go.
type DeadLetterConfig struct {
	// Enabled stores dead letters. Without it a dead letter is terminated and logged as an error.
	Enabled bool `koanf:"enabled"`
	// Stream is the DLQ stream; {stream} and {consumer} are replaced.
	Stream string `koanf:"stream"`
	// Subject is the subject of an entry; {stream}, {consumer} and {subject} (the original one) are replaced.
	Subject string `koanf:"subject"`
	// Create makes the DLQ stream if it is missing and adds its subjects to one that exists.
	Create bool `koanf:"create"`
	// Replicas of a DLQ stream made here; 0 means as many as the source stream has.
	Replicas int `koanf:"replicas"`
	// MaxAge of a DLQ stream made here; 0 means no limit.
	MaxAge time.Duration `koanf:"max_age"`
	// MaxBytes of a DLQ stream made here; 0 means no limit.
	MaxBytes int64 `koanf:"max_bytes" unit:"bytes"`
	// AlertDepth is the number of entries above which an alert is raised; 0 means never.
	AlertDepth int `koanf:"alert_depth"`
	// AlertURL is the http or https URL that an alert is posted to, once when it begins and once when it is over.
	AlertURL string `koanf:"alert_url" secret:"true"`
	// AlertFormat is what is posted: json, slack (any receiver of Slack's incoming webhooks) or alertmanager (its /api/v2/alerts).
	AlertFormat string `koanf:"alert_format" enum:"json,slack,alertmanager"`
}

// RetryStreamConfig says whether messages that wait for a retry may wait in the retry stream.
type RetryStreamConfig struct {
	// Enabled lets messages that wait for a retry wait in the stream sidecar-retries once they would hold half of
	// max_ack_pending, so that new messages keep coming, and messages that are handed back on the last delivery that the durable
	// makes. It needs nats-server 2.12.
	Enabled bool `koanf:"enabled"`
	// MaxBytes is the size of the retry stream above which nothing more is moved there; then retries wait at the durable.
	MaxBytes int64 `koanf:"max_bytes" unit:"bytes"`
}

// BatchConfig is when a batch of messages is whole.
type BatchConfig struct {
	// MaxMessages is the most messages in one request. With 1 there are no batches: the request is the message.
	MaxMessages int `koanf:"max_messages"`
	// MaxBytes is the most bytes of messages in one request, as NATS counts them; one message is always allowed.
	MaxBytes int64 `koanf:"max_bytes" unit:"bytes"`
	// MaxWait is how long a batch that is not full waits for more messages, from its first one on. It does not wait when none can come.
	MaxWait time.Duration `koanf:"max_wait"`
}
