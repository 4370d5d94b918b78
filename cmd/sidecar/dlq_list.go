package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/terminal"
)

// dlqList is sidecar dlq list.
func dlqList(c command, args []string, s streams) int {
	return reading(c, args, s, func(se *session, d *dlqFlags) int { return se.list(d.filter, d.json, s, nil) })
}

// reading runs a command that reads what the filters select.
func reading(c command, args []string, s streams, run func(*session, *dlqFlags) int) int {
	d := dlqFlagsOf(c, true)
	if !d.parse(c, args, s, false) {
		return exitUsage
	}
	se, code := d.open(c, s, -1)
	if se == nil {
		return code
	}
	defer se.end()
	return run(se, d)
}

// list writes entries as they are read, marked where something odd would become of them.
func (se *session) list(f dlq.Filter, asJSON bool, s streams, odd map[dlq.Cursor]would) int {
	out := bufio.NewWriter(s.out)
	t := &table{w: out, style: terminal.StyleOf(s.out, s.getenv), columns: entryColumns(len(se.Streams()) > 1)}
	write := func(e *dlq.Entry) error {
		w, is := odd[e.Cursor()]
		switch {
		case asJSON && is:
			return writeJSON(out, struct {
				*dlq.Entry
				would
			}{e, w})
		case asJSON:
			return writeJSON(out, e)
		case is:
			e = w.marked(e)
		}
		return t.entry(e)
	}
	n := 0
	var passed dlq.Passed
	f.Passed = &passed
	for e, err := range se.List(se.ctx, f) {
		if err == nil {
			n++
			err = write(e)
		}
		if err != nil {
			t.flush()
			return se.failed(s, errors.Join(out.Flush(), err))
		}
	}
	t.flush()
	if err := out.Flush(); err != nil {
		return se.failed(s, err)
	}
	if n == 0 && !asJSON {
		fmt.Fprintln(s.err, "no entry is selected")
	}
	if passed.Others > 0 {
		writePassed(s.err, &dlq.Passed{Others: passed.Others, OtherConsumers: passed.OtherConsumers})
	}
	if n == 0 {
		se.missing(s, f)
	}
	return exitOK
}

// writeJSON writes one line of JSON.
func writeJSON(w io.Writer, v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(append(terminal.CleanJSON([]byte(strings.TrimSuffix(b.String(), "\n"))), '\n'))
	return err
}

// sampled is how many rows are looked at for the widths of the columns before the first is written.
const sampled = 200

// mostElsewhere is how wide a column that is cut gets where there is no terminal. A subject can have some thousand characters.
const mostElsewhere = 60

// column is one column of a table.
type column struct {
	name  string
	right bool // numbers
	most  int  // on a terminal it is cut to so many characters, and elsewhere to mostElsewhere; 0: never
}

// table writes rows in columns as they come. The last column takes what is left of a terminal's line.
type table struct {
	w       io.Writer
	style   terminal.Style
	columns []column
	rows    [][]string // held back until the widths are known
	widths  []int
	line    int // columns of the terminal, 0 if it is none
}

func entryColumns(several bool) []column {
	cs := []column{
		{name: "SEQ", right: true}, {name: "TIME"}, {name: "CONSUMER", most: 24}, {name: "SUBJECT", most: 40}, {name: "REASON"},
		{name: "STATUS", right: true}, {name: "REPLAYS", right: true}, {name: "SIZE", right: true}, {name: "ERROR"},
	}
	if several {
		cs = append([]column{{name: "DLQ STREAM", most: 32}}, cs...)
	}
	return cs
}

func (t *table) entry(e *dlq.Entry) error {
	text := e.Error
	if e.Part != "" {
		text = strings.TrimSpace("(half a message: part " + e.Part + " alone) " + text)
	}
	row := []string{
		strconv.FormatUint(e.Seq, 10), e.Time.Format(time.RFC3339), e.Consumer, e.Subject, e.Reason, statusText(e.Status),
		strconv.Itoa(e.Replays), strconv.FormatInt(e.Size, 10), text,
	}
	if len(t.columns) > len(row) {
		row = append([]string{e.DLQStream}, row...)
	}
	t.row(row...)
	return nil
}

func statusText(status int) string {
	if status == 0 {
		return "-"
	}
	return strconv.Itoa(status)
}

// row takes texts of others.
func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = terminal.Clean(cells[i])
		if most := t.columns[i].most; most > 0 {
			if !t.style.Terminal {
				most = mostElsewhere
			}
			cells[i] = terminal.Cut(cells[i], most)
		}
	}
	if t.widths != nil {
		t.write(cells, "")
		return
	}
	if t.rows = append(t.rows, cells); len(t.rows) == sampled {
		t.flush()
	}
}

// flush writes what is held back.
func (t *table) flush() {
	if len(t.rows) == 0 {
		return
	}
	head := make([]string, len(t.columns))
	t.widths = make([]int, len(t.columns))
	t.line = t.style.Width()
	for i, c := range t.columns {
		head[i] = c.name
	}
	for _, row := range append([][]string{head}, t.rows...) {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	t.write(head, terminal.Bold)
	for _, row := range t.rows {
		t.write(row, "")
	}
	t.rows = nil
}

func (t *table) write(cells []string, colour string) {
	var b strings.Builder
	for i, cell := range cells {
		if i > 0 {
			b.WriteString("  ")
		}
		blanks := strings.Repeat(" ", max(0, t.widths[i]-utf8.RuneCountInString(cell)))
		switch {
		case t.columns[i].right:
			b.WriteString(blanks + cell)
		case i == len(cells)-1:
			b.WriteString(cell)
		default:
			b.WriteString(cell + blanks)
		}
	}
	line := strings.TrimRight(b.String(), " ")
	if t.line > 0 {
		line = terminal.Cut(line, t.line)
	}
	if colour != "" {
		line = t.style.Paint(colour, line)
	}
	fmt.Fprintln(t.w, line)
}
