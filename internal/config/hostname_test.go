package config

import "testing"

func TestValidServerName(t *testing.T) {
	for s, want := range map[string]bool{
		"nats": true, "nats.example.com": true, "nats.example.com.": true, "my_host-1": true, "*.example.com": true, "10.0.0.1": true, "::1": true, "[::1]": true,
		"fe80::1%eth0": true, "NATS Server": true, "nats:prod": true, "nats@prod": true, // as in a certificate of one's own authority
		"nats:4222": false, "[::1]:4222": false, "münchen": false, "a\n": false,
	} {
		if validServerName(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}
