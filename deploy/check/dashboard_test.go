package check

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

type dashboard struct {
	Title, UID string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID          int
		Title, Type string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ RefID, Expr string }
	}
}

// asQuery puts values in place of Grafana's variables.
var asQuery = strings.NewReplacer("$__rate_interval", "5m", "$stream", "S", "$consumer", "c")

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
	}
	if got := strings.Join(names, " "); d.Title == "" || d.UID == "" || got != "datasource stream consumer" {
		t.Errorf("%q %q, variables %s", d.Title, d.UID, got)
	}
	ids, asked := map[int]bool{}, 0
	for i, p := range d.Panels {
		if p.Title == "" || p.ID == 0 || ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 || (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("%+v", p)
		}
		ids[p.ID] = true
		for _, other := range d.Panels[:i] {
			a, b := p.GridPos, other.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s lies on %s", p.Title, other.Title)
			}
		}
		for _, q := range p.Targets {
			asked++
			if _, err := queries.ParseExpr(asQuery.Replace(q.Expr)); err != nil {
				t.Errorf("%s: %s: %v", p.Title, q.Expr, err)
			}
		}
	}
	if asked == 0 {
		t.Error("no queries")
	}
}
