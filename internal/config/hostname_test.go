package config

import "testing"

func TestValidHostName(t *testing.T) {
	for s, want := range map[string]bool{
		"nats": true, "nats.example.com": true, "nats.example.com.": true, "my_host-1": true, "*.example.com": true, "10.0.0.1": true, "::1": true, "[::1]": true,
		"a b": false, "nats:4222": false, "nats://nats": false, "a..b": false, ".a": false, ".": false, "münchen": false, "a\n": false, "[a]": false,
	} {
		if validHostName(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}
