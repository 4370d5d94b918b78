package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"sidecar": func() { os.Exit(Main()) },
	})
}

// TestScripts runs the command-line stories of testdata/script. $ALIVE and $DEAD are addresses of admin listeners, one
// that answers and one that answers 503; $CLOSED is one where nothing listens.
func TestScripts(t *testing.T) {
	alive := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(alive.Close)
	dead := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(dead.Close)
	closed, err := localnats.FreePort() // which nobody else listens on either
	if err != nil {
		t.Fatal(err)
	}

	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("ALIVE", strings.TrimPrefix(alive.URL, "http://"))
			env.Setenv("DEAD", strings.TrimPrefix(dead.URL, "http://"))
			env.Setenv("CLOSED", net.JoinHostPort("127.0.0.1", strconv.Itoa(closed)))
			return nil
		},
	})
}
