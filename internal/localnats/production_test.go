package localnats

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestProductionLinksNoServerAndNoTests holds the rule for cmd/sidecar.
func TestProductionLinksNoServerAndNoTests(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../cmd/sidecar").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "github.com/jetsidecar/jetsidecar/cmd/sidecar") {
		t.Fatalf("go list does not list the command itself:\n%s", out)
	}
	for _, d := range deps {
		if forbidden(d) {
			t.Errorf("cmd/sidecar links %s", d)
		}
	}
}

func TestForbidden(t *testing.T) {
	for path, want := range map[string]bool{
		"github.com/nats-io/nats-server/v2/server":            true,
		"github.com/jetsidecar/jetsidecar/internal/localnats": true,
		"testing":                                    true,
		"testing/iotest":                             true,
		"net/http/httptest":                          true,
		"go.uber.org/goleak":                         true,
		"pgregory.net/rapid":                         true,
		"github.com/nats-io/nats.go/jetstream":       false,
		"github.com/jetsidecar/jetsidecar/jetstream": false,
		"net/http":                                   false,
	} {
		if forbidden(path) != want {
			t.Errorf("forbidden(%q) = %v", path, !want)
		}
	}
}

// forbidden reports whether an import path is a NATS server's or only of use to tests.
func forbidden(path string) bool {
	for _, p := range []string{
		"github.com/nats-io/nats-server", "github.com/jetsidecar/jetsidecar/internal/localnats",
		"testing", "net/http/httptest", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/rogpeppe/go-internal",
	} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}
