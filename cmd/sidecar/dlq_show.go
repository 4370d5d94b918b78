package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/terminal"
	"github.com/jetsidecar/jetsidecar/jetstream"
)

// shownBytes is how much of a body is shown in readable form.
const shownBytes = 64 << 10

// dlqShow is sidecar dlq show.
func dlqShow(c command, args []string, s streams) int {
	d := dlqFlagsOf(c, false)
	raw := d.Bool("raw", false, "")
	if !d.parse(c, args, s, true) {
		return exitUsage
	}
	usage := func(why string) int {
		fmt.Fprintf(s.err, "sidecar dlq show: %s\nUsage: sidecar dlq show %s\n", why, c.args)
		return exitUsage
	}
	style := terminal.StyleOf(s.out, s.getenv)
	switch {
	case d.seq == 0:
		return usage("the sequence of an entry is missing; sidecar dlq list has them")
	case *raw && d.json:
		return usage("flags --raw and --json do not go together")
	}
	se, code := d.open(c, s, -1)
	if se == nil {
		return code
	}
	defer se.end()
	if err := d.named(se); err != nil {
		return usage(err.Error())
	}
	l, err := se.Get(se.ctx, d.filter.Stream, d.seq)
	if err != nil {
		return se.failed(s, err)
	}
	switch {
	case *raw && style.Terminal && terminal.CleanLines(string(l.Body)) != string(l.Body):
		return se.failed(s, errors.New("the body holds what a terminal would take for commands: write it to a file or a pipe"))
	case *raw:
		_, err = s.out.Write(l.Body)
		return written(err, s)
	case d.json:
		return written(writeJSON(s.out, l), s)
	}
	out := bufio.NewWriter(s.out)
	writeLetter(out, style, l)
	return written(out.Flush(), s)
}

// writeLetter writes an entry for people.
func writeLetter(w io.Writer, style terminal.Style, l *dlq.Letter) {
	title := func(text string) { fmt.Fprintf(w, "%s\n", style.Paint(terminal.Bold, text)) }
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %-11s %s\n", name, terminal.Clean(value))
		}
	}
	title(fmt.Sprintf("entry %d of %s, stored %s", l.Seq, terminal.Clean(l.DLQStream), l.Time.Format(time.RFC3339Nano)))
	switch {
	case l.Stream == "":
		fmt.Fprintln(w, style.Paint(terminal.Yellow, "this is no dead letter: another message in the DLQ stream"))
	case l.Other:
		fmt.Fprintln(w, style.Paint(terminal.Yellow, "this is of a consumer that is not in the configuration"))
	}
	if l.Part != "" {
		fmt.Fprintln(w, style.Paint(terminal.Yellow, "this is half a message: part "+l.Part+" alone, the other part is not there"))
	}
	if l.Stream != "" {
		header := func(name string) string { return strings.Join(l.Headers[name], ", ") }
		fmt.Fprintln(w)
		title("cause")
		row("reason", l.Reason)
		row("status", header(jetstream.HeaderStatus))
		row("error", l.Error)
		row("response", header(jetstream.HeaderResponse))
		row("failed at", header(jetstream.HeaderFailedAt))
		row("deliveries", strconv.FormatUint(l.Deliveries, 10))
		row("replays", strconv.Itoa(l.Replays))
		fmt.Fprintln(w)
		title("message")
		row("stream", l.Stream)
		row("consumer", l.Consumer)
		row("subject", l.Subject)
		row("sequence", strconv.FormatUint(l.Sequence, 10))
		row("stored", header(jetstream.HeaderTimeStamp))
		row("id", l.MsgID)
	}
	writeHeaders(w, title, l)
	kind, text := readable(l.Body, header(l.Headers, "Content-Type"))
	fmt.Fprintln(w)
	title(fmt.Sprintf("body: %d bytes%s", len(l.Body), kind))
	fmt.Fprint(w, text)
	if len(l.Body) > shownBytes {
		fmt.Fprintf(w, "... and %d bytes more; --raw writes all of them\n", len(l.Body)-shownBytes)
	}
}

// writeHeaders writes the headers as they are stored, but those that were shown as the cause.
func writeHeaders(w io.Writer, title func(string), l *dlq.Letter) {
	names := slices.Sorted(maps.Keys(l.Headers))
	if l.Stream != "" {
		names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, "Dlq-") && n != jetstream.HeaderPart })
	}
	if len(names) == 0 {
		return
	}
	fmt.Fprintln(w)
	title("headers")
	for _, name := range names {
		for _, v := range l.Headers[name] {
			fmt.Fprintf(w, "  %s: %s\n", terminal.Clean(name), terminal.Clean(v))
		}
	}
}

func header(h map[string][]string, name string) string {
	for n, values := range h {
		if strings.EqualFold(n, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

// readable is a body for people, and what it was taken for.
func readable(body []byte, contentType string) (kind, text string) {
	cut := body[:min(len(body), shownBytes)]
	var pretty bytes.Buffer
	switch trimmed := bytes.TrimSpace(body); {
	case len(body) == 0:
		return "", ""
	case len(body) <= shownBytes && utf8.Valid(body) && looksLikeJSON(trimmed, contentType) && json.Indent(&pretty, trimmed, "", "  ") == nil:
		return ", JSON", terminal.CleanLines(pretty.String()) + "\n"
	case isText(cut):
		return ", text", strings.TrimSuffix(terminal.CleanLines(string(cut)), "\n") + "\n"
	default:
		return ", binary", hex.Dump(cut)
	}
}

// looksLikeJSON reports whether a body is worth reading as JSON: a number or a word alone is text as well.
func looksLikeJSON(body []byte, contentType string) bool {
	return strings.Contains(contentType, "json") || len(body) > 0 && (body[0] == '{' || body[0] == '[')
}

// isText reports whether most of a body can be shown as it is. The last rune may be cut.
func isText(body []byte) bool {
	odd := 0
	for i := 0; i < len(body); {
		r, size := utf8.DecodeRune(body[i:])
		if r == utf8.RuneError && size == 1 && len(body)-i >= utf8.UTFMax || r == 0 {
			return false
		}
		if r < ' ' && r != '\n' && r != '\t' && r != '\r' {
			odd++
		}
		i += size
	}
	return odd*10 <= len(body)
}
