// Package forward sends one message to the app over HTTP and reports what came of it.
package forward

import "time"

// Config is where the app is and how to speak to it.
type Config struct {
	// URL is the app's address: http, https, or unix:///run/app.sock.
	URL string `koanf:"url" secret:"url"`
	// Protocol is http1, or h2c for HTTP/2 without TLS.
	Protocol string `koanf:"protocol" enum:"http1,h2c"`
	// Timeout bounds one attempt, from the first byte sent until the whole answer was read; at least 1ms.
	Timeout time.Duration `koanf:"timeout"`
	// CAFile is a PEM file with the certificate authorities to trust for an https app; empty means the system's.
	CAFile string `koanf:"ca_file"`
	// Headers are sent with every request. Their values are secret.
	Headers map[string]string `koanf:"headers" secret:"value"`
	// BearerToken is sent as Authorization: Bearer.
	BearerToken string `koanf:"bearer_token" secret:"file"`
	// SigningSecret is what requests are signed with, as Standard Webhooks wants it: whsec_ and the base64 of 24 to 64 bytes; a
	// list of two during rotation, one a line in a file. Empty means no signature.
	SigningSecret []string `koanf:"signing_secret" secret:"file"`
	// Ready is how the app is probed before messages are pulled.
	Ready ReadyConfig `koanf:"ready"`
}

// ReadyConfig is how the app is probed.
type ReadyConfig struct {
	// Path answers 2xx when the app is ready; without a path a connection is enough: TCP, and TLS for https.
	Path string `koanf:"path"`
	// Interval is the time between probes; at least 10ms. While the app cannot be connected to it is 2s at most.
	Interval time.Duration `koanf:"interval"`
}
