package main

import (
	"fmt"
	"net/url"
	"strings"
)

// running is what runs where.
type running struct {
	nats, app, admin string
	adminBusy        string // why the address asked for could not be had; empty if all is well
	source           source
	dlq              string
	store            store
	own              bool // the app is the user's
}

// header says what runs where and what to try.
func (r running) header(s style) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s  %s\n\n", s.paint(bold, "jetsidecar"), "JetStream messages, delivered to an HTTP app")
	row := func(name, value, what string) {
		fmt.Fprintf(&b, "  %s%s  %s\n", s.paint(dim, pad(name, 8)), s.paint(bold, pad(value, 23)), what)
	}
	row("NATS", r.nats, r.kept())
	row("stream", r.source.name, clean(strings.Join(r.source.subjects, ", "))+", dead letters go to "+r.dlq)
	row("app", r.app, r.appIs())
	row("admin", "http://"+r.admin, "web page; /readyz, /metrics")
	if r.adminBusy != "" {
		fmt.Fprintf(&b, "          %s\n", s.paint(yellow, r.adminBusy))
	}
	fmt.Fprintf(&b, "\n  %s\n", s.paint(dim, "Try in another terminal (nats is github.com/nats-io/natscli):"))
	for _, c := range r.commands() {
		fmt.Fprintf(&b, "    %s\n", c)
	}
	if r.own {
		fmt.Fprintf(&b, "\n  %s\n", s.paint(dim, "Start your app, if it does not run yet: the messages wait for it."))
	} else {
		fmt.Fprintf(&b, "\n  %s\n", s.paint(dim, "Your own app instead:"))
		fmt.Fprintf(&b, "    go run ./cmd/sidecar-dev --app http://127.0.0.1:8080\n")
	}
	fmt.Fprintf(&b, "\n  %s\n", s.paint(dim, "The production command on this server, beside this one:"))
	fmt.Fprintf(&b, "    %s\n", strings.Join(r.production(), " \\\n    "))
	fmt.Fprintf(&b, "\n  %s\n", s.paint(dim, "Ctrl-C stops, with a summary. --help lists the flags."))
	return b.String()
}

func (r running) kept() string {
	if r.store.temporary {
		return "JetStream, in a temporary store"
	}
	return "JetStream, kept in " + clean(r.store.dir)
}

func (r running) appIs() string {
	if r.own {
		return "your app"
	}
	return "sample app: 503 at times, 422 for bad orders"
}

// commands are to be typed as they are.
func (r running) commands() []string {
	publish := fmt.Sprintf("nats -s %s pub %s ", r.nats, shell(r.source.subject("created")))
	all := []string{
		"curl -s http://" + r.admin + "/readyz",
		"curl -s http://" + r.admin + "/metrics | grep sidecar_messages_total",
		publish + `'{"order":"mine"}'`,
	}
	if !r.own {
		all = append(all, publish+`'{"total":-1}'`)
	}
	return append(all, "go run ./cmd/sidecar dlq list --admin http://"+r.admin)
}

// production are the lines of one command.
func (r running) production() []string {
	return []string{
		"SIDECAR_NATS_URLS=" + r.nats + " SIDECAR_ADMIN_LISTEN=127.0.0.1:0",
		"SIDECAR_APP_URL=" + shell(r.app),
		"SIDECAR_CONSUMERS_0_STREAM=" + r.source.name + " SIDECAR_CONSUMERS_0_DURABLE=second",
		"go run ./cmd/sidecar run",
	}
}

// shell quotes a word for a shell where that is needed.
func shell(word string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/:@%+=,", r)
	}
	word = clean(word)
	if strings.IndexFunc(word, func(r rune) bool { return !safe(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// withoutUser is a URL to show: user and password are secrets.
func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return address
	}
	u.User = url.User("redacted")
	return u.String()
}
