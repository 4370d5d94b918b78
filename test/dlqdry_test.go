package test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// A dry run marks what would not be done, here and by way of a sidecar, and does nothing.
func TestDryRunMarksWhatWouldBeLeft(t *testing.T) {
	w := newWorld(t)
	s := w.running(func(c *config.Config) { c.Admin.Token = "secret" })
	w.buryOne(letter(1))
	w.buryOne(letter(1, func(h nats.Header) { h["Dlq-Replays"], h["Nats-Msg-Id"] = []string{"1"}, nil }))
	w.buryOne(letter(2, func(h nats.Header) { h["Dlq-Part"], h["Nats-Msg-Id"] = []string{"1/2"}, nil }))
	w.buryOne(letter(3, func(h nats.Header) { h["Dlq-Replays"] = []string{"3"} }))
	w.buryOne(letter(4))
	const (
		anew  = "it was replayed and failed again, and its message is there anew"
		half  = "it is half a message: part 1/2 alone"
		often = "it was replayed 2 times already"
	)
	for _, where := range []string{"", " --token secret --admin " + string(s.admin)} {
		run := func(args string) said { return w.dlq(strings.Fields(args + where)...) }
		got := run("replay --max-replays 2 --dry-run")
		rows := strings.Split(got.out, "\n")
		if got.code != 0 || len(rows) != 7 {
			t.Fatalf("%s: %+v", where, got)
		}
		for i, want := range []string{"(would be removed: " + anew + ") no such customer", " no such customer", "(would be left: " + half + ")", "(would be left: " + often + ")", "  no such customer"} {
			if row := rows[i+1]; !strings.Contains(row, want) || !strings.Contains(want, "would") && strings.Contains(row, "would") {
				t.Errorf("%s: %q\nwant %q", where, row, want)
			}
		}
		if want := "these would be replayed to the app:\n2 of 5 entries would be replayed to the app, 1 removed without a call, 2 left\n"; got.err != want {
			t.Errorf("%s: %q", where, got.err)
		}
		all := lines[map[string]any](t, run("replay --max-replays 2 --dry-run --json").out)
		if len(all) != 5 || all[0]["would_be"] != "removed" || all[0]["why"] != anew || all[1]["would_be"] != nil || all[2]["would_be"] != "left" || all[2]["why"] != half || all[3]["seq"] != 4. {
			t.Errorf("%s: %+v", where, all)
		}
		if got := run("rm --dry-run"); strings.Count(got.out, "would be left: its second part may be on its way") != 1 || !strings.Contains(got.err, "4 of 5 entries would be removed, 1 left") {
			t.Errorf("%s: %+v", where, got)
		}
		if got := run("replay 5 --dry-run"); got.err != "these would be replayed to the app:\n" || strings.Count(got.out, "\n") != 2 {
			t.Errorf("%s: %+v", where, got)
		}
	}
	if n := len(w.dead()); n != 5 || w.app.count() != 0 {
		t.Errorf("%d are left, %d calls", n, w.app.count())
	}
}
