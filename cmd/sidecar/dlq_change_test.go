package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/dlq"
	"github.com/jetsidecar/jetsidecar/internal/terminal"
)

// A sequence alone names an entry in each of several DLQ streams: nothing is done with any of them.
func TestSequenceOfSeveralStreams(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/api/dlq" {
			t.Errorf("asked for %s %s", r.Method, r.URL)
		}
		fmt.Fprint(w, `{"streams":["A","B"],"entries":[]}`)
	}))
	defer s.Close()
	for _, args := range []string{"show 5", "rm 5 --yes", "replay 5 --yes", "rm 5 --dry-run"} {
		code, out, stderr := tool(nil, append([]string{"dlq"}, strings.Fields(args+" --admin "+s.URL)...)...)
		if code != exitUsage || out != "" || !strings.Contains(stderr, "flag --stream is needed with SEQ: there are 2 DLQ streams: A, B") {
			t.Errorf("%s: exit %d\n%s%s", args, code, out, stderr)
		}
	}
}

// What could not be looked at is not said to be empty.
func TestSelectionThatFails(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"streams":["D"],"entries":[]}`)
			return
		}
		fmt.Fprint(w, `{"report":{"selected":0,"failures":[]},"error":"no permission"}`)
	}))
	defer s.Close()
	for _, what := range []string{"rm", "replay"} {
		code, out, stderr := tool(nil, "dlq", what, "--yes", "--admin", s.URL)
		if code != exitFailed || out != "" || !strings.Contains(stderr, "no permission") {
			t.Errorf("%s: exit %d\n%s%s", what, code, out, stderr)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestOutputThatCannotBeWritten(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			fmt.Fprint(w, `{"report":{"selected":1,"done":1,"failures":[],"up_to":["D:7"]}}`)
		case strings.HasSuffix(r.URL.Path, "/stats"):
			_ = json.NewEncoder(w).Encode(dlq.Stats{})
		case strings.HasSuffix(r.URL.Path, "/7"):
			_ = json.NewEncoder(w).Encode(dlq.Letter{Entry: dlq.Entry{DLQStream: "D", Seq: 7, Stream: "S"}})
		default:
			fmt.Fprint(w, `{"streams":["D"],"entries":[{"dlq_stream":"D","seq":7}]}`)
		}
	}))
	defer s.Close()
	for _, args := range []string{"list", "list --json", "stats", "stats --json", "show 7", "show 7 --json", "rm 7", "replay 7", "rm 7 --json"} {
		var stderr strings.Builder
		code := dispatch(append([]string{"dlq"}, strings.Fields(args+" --admin "+s.URL)...), streams{in: strings.NewReader(""), out: fullDisk{}, err: &stderr})
		if code != exitFailed || !strings.Contains(stderr.String(), "no space") {
			t.Errorf("%s: exit %d, %s", args, code, stderr.String())
		}
	}
}

// The report says of how many entries that are gone it is not known what became of them.
func TestReportOfWhatIsNotKnown(t *testing.T) {
	var out strings.Builder
	writeReport(&out, terminal.Style{}, &dlq.Report{Progress: dlq.Progress{Selected: 9, Done: 9, Gone: 5}, Unsettled: 3}, "replayed")
	want := "4 of 9 entries replayed, 5 gone already, 3 of them perhaps failed again in another replay: it took too long to look\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}
