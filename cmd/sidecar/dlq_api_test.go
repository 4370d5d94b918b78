package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jetsidecar/jetsidecar/internal/admin"
	"github.com/jetsidecar/jetsidecar/internal/admin/admintest"
	"github.com/jetsidecar/jetsidecar/internal/config"
	"github.com/jetsidecar/jetsidecar/internal/dlq"
)

// realAPI is the API as it is, on dead letters that are made up. meanwhile, if set, is called between the dry run and what follows it.
func realAPI(t *testing.T, letters *admintest.Letters, meanwhile func()) string {
	t.Helper()
	api := admin.New(admin.Options{Config: config.Admin{Token: "secret"}, Letters: letters, Changes: letters}).Handler()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = &passing{ReadCloser: r.Body, end: func(text []byte) {
			var body struct {
				DryRun *bool `json:"dry_run"`
			}
			if _ = json.Unmarshal(text, &body); body.DryRun != nil && !*body.DryRun && meanwhile != nil {
				meanwhile()
			}
		}}
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// passing is a body that says what it was at its end.
type passing struct {
	io.ReadCloser
	text []byte
	end  func(text []byte)
}

func (p *passing) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if p.text = append(p.text, b[:n]...); err == io.EOF {
		p.end(p.text)
	}
	return n, err
}

// What comes after the question was asked is not part of the answer.
func TestRemoteSelectionIsFixed(t *testing.T) {
	for _, c := range []struct {
		args string
		was  func(*admintest.Letters) // between the question and the work
		done string
		left int
	}{
		{"rm --yes", func(l *admintest.Letters) { l.Fill(3) }, "5 of 5 entries removed", 3},
		{"replay --yes", func(l *admintest.Letters) { l.Fill(3) }, "5 of 5 entries replayed", 3},
		{"replay --to stream --yes", func(l *admintest.Letters) { l.Fill(3) }, "5 of 5 entries replayed", 3},
		{"rm --seq 2- --yes", func(l *admintest.Letters) { l.Fill(3) }, "4 of 4 entries removed", 4},
		{"rm --yes", func(l *admintest.Letters) { l.Add(dlq.Letter{Entry: dlq.Entry{DLQStream: "B_DLQ", Stream: "B"}}) }, "5 of 5 entries removed", 1},
		// The oldest three are those that were the oldest three; that two are gone is told.
		{"rm --limit 3 --yes", func(l *admintest.Letters) {
			_, _ = l.Remove(t.Context(), dlq.Filter{First: 1, Last: 2}, dlq.RemoveOptions{})
		}, "gone or changed since they were selected: 2 of 3 entries; look with `sidecar dlq stats`\n1 of 1 entry removed", 2},
		{"rm --consumer nobody --yes", func(l *admintest.Letters) { l.Add(dlq.Letter{Entry: dlq.Entry{Consumer: "nobody"}}) }, "no entry is selected", 6},
	} {
		letters := admintest.NewLetters("A_DLQ", "B_DLQ")
		letters.Fill(5)
		url := realAPI(t, letters, func() { c.was(letters) })
		code, out, stderr := tool(nil, append([]string{"dlq"}, strings.Fields(c.args+" --token secret --admin "+url)...)...)
		if missed := strings.Contains(c.done, "since they were selected"); (code == exitOK) == missed || !strings.Contains(out, c.done) || letters.Len() != c.left {
			t.Errorf("%s: exit %d, %d left, want %d\n%s%s", c.args, code, letters.Len(), c.left, out, stderr)
		}
	}
}

// A dry run lists what was selected, and counts that, whatever came until it is listed.
func TestRemoteDryRunIsFixed(t *testing.T) {
	come := func(n int) func(*admintest.Letters) {
		return func(l *admintest.Letters) {
			for range n {
				l.Add(dlq.Letter{Entry: dlq.Entry{Stream: "A"}})
			}
		}
	}
	for _, c := range []struct {
		args string
		was  func(*admintest.Letters) // between the selection and the list
		want []uint64
	}{
		{"replay", come(3), []uint64{1, 2, 3, 4, 5}},
		{"rm", come(3), []uint64{1, 2, 3, 4, 5}},
		{"replay --to stream", func(l *admintest.Letters) { l.Add(dlq.Letter{Entry: dlq.Entry{DLQStream: "B_DLQ", Stream: "B"}}) }, []uint64{1, 2, 3, 4, 5}},
		{"replay", come(2 * remotePage), []uint64{1, 2, 3, 4, 5}},
		{"replay --seq 2-", come(3), []uint64{2, 3, 4, 5}},
		{"rm --limit 3", func(l *admintest.Letters) {
			_, _ = l.Remove(t.Context(), dlq.Filter{First: 1, Last: 2}, dlq.RemoveOptions{})
		}, []uint64{3}},
		{"rm --consumer nobody", func(l *admintest.Letters) { l.Add(dlq.Letter{Entry: dlq.Entry{Consumer: "nobody"}}) }, nil},
	} {
		letters := admintest.NewLetters("A_DLQ", "B_DLQ")
		letters.Fill(5)
		api := admin.New(admin.Options{Letters: letters, Changes: letters, Config: config.Admin{Token: "secret"}}).Handler()
		var selected, came atomic.Bool
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				selected.Store(true)
			}
			if r.URL.Path == "/api/dlq" && selected.Load() && !came.Swap(true) {
				c.was(letters)
			}
			api.ServeHTTP(w, r)
		}))
		code, out, stderr := tool(nil, append([]string{"dlq"}, strings.Fields(c.args+" --dry-run --json --token secret --admin "+s.URL)...)...)
		s.Close()
		var listed []uint64
		for lines := json.NewDecoder(strings.NewReader(out)); lines.More(); {
			var e dlq.Entry
			if err := lines.Decode(&e); err != nil {
				t.Fatal(err)
			}
			listed = append(listed, e.Seq)
		}
		if code != exitOK || !came.Load() || !slices.Equal(listed, c.want) {
			t.Errorf("%s: exit %d, %d are listed, want %d\n%s", c.args, code, listed, c.want, stderr)
		}
	}
}

// A replay that is stopped here has a whole report: the sidecar is told, finishes what is in work, and says all that it did.
func TestRemoteStopsWithAReport(t *testing.T) {
	letters := admintest.NewLetters("D")
	letters.Fill(9)
	told, calls := make(chan struct{}), 0
	letters.App = func(*dlq.Letter) dlq.Outcome {
		if calls++; calls == 3 {
			<-told // it is in work when the sidecar is told to stop
		}
		return dlq.Outcome{Result: dlq.Acked, Status: 200}
	}
	api := admin.New(admin.Options{Config: config.Admin{Token: "secret"}, Letters: letters, Changes: letters}).Handler()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.ServeHTTP(w, r)
		if r.URL.Path == "/api/dlq/stop" {
			close(told)
		}
	}))
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	base, err := remoteURL(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	r, err := dialRemote(ctx, base, "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	report, err := r.Replay(ctx, dlq.Filter{}, dlq.ReplayOptions{Concurrency: 1, OnProgress: func(dlq.Progress) { stop() }})
	if err != nil || !report.Interrupted || report.Partial || report.Selected != 9 || report.Done != 3 || letters.Len() != 6 {
		t.Errorf("%+v, %v, %d are left", report, err, letters.Len())
	}
	if report, err := r.Replay(ctx, dlq.Filter{}, dlq.ReplayOptions{Concurrency: 1}); err != nil || !report.Interrupted || report.Partial || letters.Len() != 6 {
		t.Errorf("stopped before it began: %+v, %v, %d are left", report, err, letters.Len())
	}
}

// SEQ names an entry, or the command fails and says why.
func TestSequenceThatNamesNothing(t *testing.T) {
	letters := admintest.NewLetters("D")
	letters.Fill(2)
	letters.Add(dlq.Letter{}) // no dead letter
	url := realAPI(t, letters, nil)
	for _, c := range []struct{ args, why string }{
		{"99", "no such entry"},
		{"3", "message 3 of D is no dead letter: it is left"},
		{"2 --reason crash_loop", "entry 2 does not match the filters"},
		{"2 --status none", "entry 2 does not match the filters"},
		{"2 --stream D --until 2000-01-01T00:00:00Z", "entry 2 does not match the filters"},
	} {
		for _, command := range []string{"rm ", "replay ", "replay --to stream ", "rm --yes --json ", "rm --dry-run ", "replay --dry-run "} {
			args := command + c.args
			code, out, stderr := tool(nil, append([]string{"dlq"}, strings.Fields(args+" --token secret --admin "+url)...)...)
			if code != exitFailed || out != "" || !strings.Contains(stderr, c.why) {
				t.Errorf("%s: exit %d\n%s%s", args, code, out, stderr)
			}
		}
	}
	if code, out, stderr := tool(nil, "dlq", "rm", "2", "--reason", "rejected", "--token", "secret", "--admin", url); code != exitOK || letters.Len() != 2 {
		t.Errorf("exit %d, %d left\n%s%s", code, letters.Len(), out, stderr)
	}
}

// An entry that goes between the look and the work is not handled, and that is said.
func TestEntryThatGoes(t *testing.T) {
	letters := admintest.NewLetters("D")
	letters.Fill(1)
	url := realAPI(t, letters, func() { _, _ = letters.Remove(t.Context(), dlq.Filter{}, dlq.RemoveOptions{}) })
	code, out, stderr := tool(nil, "dlq", "rm", "1", "--token", "secret", "--admin", url)
	if code != exitFailed || !strings.Contains(stderr, "entry 1 is not there any more") {
		t.Errorf("exit %d\n%s%s", code, out, stderr)
	}
}

// Where there is no DLQ at all, that is said, and not that one of none must be chosen.
func TestNoDLQ(t *testing.T) {
	url := realAPI(t, admintest.NewLetters(), nil)
	for _, args := range []string{"show 1", "rm 1", "replay 1 --dry-run", "list --stream X", "rm --stream X --yes"} {
		code, out, stderr := tool(nil, append([]string{"dlq"}, strings.Fields(args+" --token secret --admin "+url)...)...)
		if code != exitUsage || out != "" || !strings.Contains(stderr, "no consumer of this configuration has a DLQ") {
			t.Errorf("%s: exit %d\n%s%s", args, code, out, stderr)
		}
	}
}

// What the API bounds and takes for granted is what the command line does.
func TestBoundsOfReplays(t *testing.T) {
	letters := admintest.NewLetters("D")
	url := realAPI(t, letters, nil)
	for _, args := range []string{"--concurrency 64 --rate 1000000 --max-replays 0", "--concurrency 1 --rate 0"} {
		if code, _, stderr := tool(nil, append([]string{"dlq", "replay", "--token", "secret", "--admin", url}, strings.Fields(args)...)...); code != exitOK {
			t.Errorf("%s: exit %d, %s", args, code, stderr)
		}
	}
	for _, args := range []string{"--concurrency 65", "--concurrency 0", "--rate 1000001", "--rate -1", "--max-replays -1", "--reason nonsense"} {
		if code, _, _ := tool(nil, append([]string{"dlq", "replay", "--token", "secret", "--admin", url}, strings.Fields(args)...)...); code != exitUsage {
			t.Errorf("%s: exit %d", args, code)
		}
		name, value, _ := strings.Cut(strings.TrimPrefix(args, "--"), " ")
		body := `{"` + strings.ReplaceAll(name, "-", "_") + `": ` + value + `}`
		if name == "reason" {
			body = `{"reason": "` + value + `"}`
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/dlq/replay", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer secret")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", body, resp.StatusCode)
		}
	}
}
