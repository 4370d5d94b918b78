package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/terminal"
)

// dlqStats is sidecar dlq stats.
func dlqStats(c command, args []string, s streams) int {
	return reading(c, args, s, func(se *session, d *dlqFlags) int { return se.stats(d.filter, d.json, s) })
}

// stats writes the numbers of all entries.
func (se *session) stats(f dlq.Filter, asJSON bool, s streams) int {
	st, err := se.Stats(se.ctx, f)
	if err != nil {
		return se.failed(s, err)
	}
	if st.Entries == 0 {
		se.missing(s, f)
	}
	if asJSON {
		return written(writeJSON(s.out, st), s)
	}
	out := bufio.NewWriter(s.out)
	writeStats(out, terminal.StyleOf(s.out, s.getenv), st)
	return written(out.Flush(), s)
}

func writeStats(w io.Writer, style terminal.Style, st *dlq.Stats) {
	fmt.Fprintf(w, "%s, %d bytes", entries(st.Entries), st.Bytes)
	if st.Entries > 0 {
		fmt.Fprintf(w, ", stored from %s to %s", st.Oldest.Format(time.RFC3339), st.Newest.Format(time.RFC3339))
	}
	fmt.Fprintln(w)
	writePassed(w, &st.Passed)
	if st.Entries == 0 {
		return
	}
	fmt.Fprintln(w)
	t := &table{w: w, style: style, columns: []column{
		{name: "COUNT", right: true}, {name: "CONSUMER", most: 24}, {name: "SUBJECT", most: 40}, {name: "REASON"}, {name: "STATUS", right: true},
		{name: "OLDEST"}, {name: "NEWEST"},
	}}
	for _, g := range st.Groups {
		t.row(strconv.Itoa(g.Count), g.Consumer, g.Subject, g.Reason, statusText(g.Status), g.Oldest.Format(time.RFC3339), g.Newest.Format(time.RFC3339))
	}
	t.flush()
}

// writePassed says what was left out.
func writePassed(w io.Writer, p *dlq.Passed) {
	if p.Foreign > 0 {
		fmt.Fprintf(w, "%s there that are no dead letters are not counted\n", count(p.Foreign, "message"))
	}
	if p.Others == 0 {
		return
	}
	line, verb := entries(p.Others)+" of other consumers", "are"
	if p.Others == 1 {
		verb = "is"
	}
	line += " " + verb + " not counted"
	if len(p.OtherConsumers) > 0 {
		line += ": --consumer " + strings.Join(p.OtherConsumers, ", --consumer ")
	}
	fmt.Fprintln(w, terminal.Clean(line))
}

func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}
