package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// asCommand in the environment makes the test binary the command itself.
const asCommand = "SIDECAR_DEV_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(Main())
	}
	// A stream that is being made when its server shuts down is not closed by it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}

// output collects what is written, and can tell when a text was.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	watch string
	seen  func()
}

// Write collects.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if o.seen != nil && strings.Contains(o.text.String(), o.watch) {
		o.seen()
		o.seen = nil
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// play runs the command line in this process until it ends by itself or ctx does.
func play(t *testing.T, ctx context.Context, out *output, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	errs := &output{}
	s := streams{out: out, err: errs, getenv: func(string) string { return "" }}
	o, code, ok := parse(append([]string{"--port", "0", "--admin", "127.0.0.1:0"}, args...), s)
	if ok {
		place := store{dir: o.store}
		if o.store == "" {
			place = store{dir: t.TempDir(), temporary: true}
		}
		code = report(run(ctx, o, place, s), s)
	}
	return out.String(), errs.String(), code
}

// table reads the numbers of the summary.
func table(t *testing.T, stdout string) map[string]int {
	t.Helper()
	_, text, ok := strings.Cut(stdout, "\nSummary after ")
	if !ok {
		t.Fatalf("no summary in:\n%s", stdout)
	}
	rows := make(map[string]int)
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z ]{14}) *(-?\d+)(?:  |$)`).FindAllStringSubmatch(text, -1) {
		rows[strings.TrimSpace(m[1])], _ = strconv.Atoi(m[2])
	}
	return rows
}

// mustAddUp checks that every message is in exactly one row.
func mustAddUp(t *testing.T, rows map[string]int) {
	t.Helper()
	in := rows["published"] + rows["held back"] + rows["others"]
	out := rows["acked"] + rows["duplicates"] + rows["dropped"] + rows["dead letters"] + rows["not settled"]
	if in != out || out != rows["total"] {
		t.Errorf("%d came in, %d came out, total %d: %v", in, out, rows["total"], rows)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--help", 0, "Usage: sidecar-dev [flags]"},
		{"--port 0 -h", 0, "--messages N"},
		{"--prot 1", 2, "unknown flag --prot; the nearest is --port\n"},
		{"--message 1", 2, "unknown flag --message; the nearest is --messages\n"},
		{"--port x", 2, `invalid value "x" for flag --port`},
		{"--messages", 2, "flag needs an argument: --messages\n"},
		{"--rate NaN --port 70000", 2, "sidecar-dev: --port 70000: must be 0 to 65535\nsidecar-dev: --rate NaN: must be"},
		{"--messages -1", 2, "--messages -1: must not be negative"},
		{"--messages 3 --rate 0", 2, "nothing is published with --rate 0"},
		{"--app localhost:8080", 2, "--app localhost:8080: must begin with http://"},
		{"--stream a.b", 2, "--stream a.b: holds"},
		{"--stream=", 2, `--stream "": is missing`},
		{"--admin nope", 2, "--admin nope: must be host:port"},
		{"orders", 2, `unexpected argument "orders"`},
	} {
		t.Run(c.args, func(t *testing.T) {
			var out, errs output
			_, code, ok := parse(strings.Fields(c.args), streams{out: &out, err: &errs})
			said, silent := errs.String(), out.String()
			if c.code == exitOK {
				said, silent = silent, said
			}
			if ok || code != c.code || silent != "" || !strings.Contains(said, c.want) {
				t.Errorf("ok %v, code %d, said %q, and on the other stream %q", ok, code, said, silent)
			}
		})
	}
}

// TestHelpFitsAndNamesEveryFlag holds the help to the flags there are.
func TestHelpFitsAndNamesEveryFlag(t *testing.T) {
	for _, name := range []string{"app", "port", "store", "stream", "rate", "messages", "admin"} {
		if !strings.Contains(helpText, "\n  --"+name+" ") {
			t.Errorf("the help lacks --%s", name)
		}
		if _, err := parseFlags([]string{fmt.Sprintf("--%s=1", name)}); err != nil {
			t.Errorf("--%s: %v", name, err)
		}
	}
	for line := range strings.Lines(helpText) {
		if len(line) > 81 {
			t.Errorf("wider than a terminal: %q", line)
		}
	}
}
