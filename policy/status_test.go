package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Every status, by default.
func TestDefaultStatus(t *testing.T) {
	table, err := NewStatusTable(DefaultStatus())
	if err != nil {
		t.Fatal(err)
	}
	retried := []int{401, 403, 404, 405, 407, 408, 409, 421, 423, 424, 425, 429}
	for code := 100; code <= 599; code++ {
		want := Retry
		switch {
		case code/100 == 2:
			want = Ack
		case code/100 == 4 && !slices.Contains(retried, code):
			want = DLQ
		}
		for name, table := range map[string]*StatusTable{"given": table, "built in": nil} {
			if got := table.Lookup(code); got != want {
				t.Errorf("%s: %d is %v, want %v", name, code, got, want)
			}
		}
	}
	for _, code := range []int{-1, 0, 99, 600, 999, 1 << 40, -1 << 40} {
		if got := table.Lookup(code); got != Retry {
			t.Errorf("%d is %v", code, got)
		}
	}
}

func TestStatusTable(t *testing.T) {
	for name, c := range map[string]struct {
		config StatusConfig
		want   map[int]Verdict
	}{
		"a given class beats a default code": {
			StatusConfig{DLQ: []string{"4xx"}},
			map[int]Verdict{404: DLQ, 429: DLQ, 418: DLQ, 200: Ack, 500: Retry},
		},
		"a given code beats a given class": {
			StatusConfig{DLQ: []string{"4xx"}, Retry: []string{"404"}},
			map[int]Verdict{404: Retry, 429: DLQ, 500: Retry, 302: Retry},
		},
		"the others keep their defaults": {
			StatusConfig{Drop: []string{"410"}},
			map[int]Verdict{410: Drop, 411: DLQ, 429: Retry, 204: Ack},
		},
		"a list given as empty has no defaults": {
			StatusConfig{DLQ: []string{}},
			map[int]Verdict{400: Retry, 404: Retry, 200: Ack},
		},
		"in no list is retry": {
			StatusConfig{Ack: []string{"200"}, Retry: []string{}, DLQ: []string{}, Drop: []string{}},
			map[int]Verdict{200: Ack, 201: Retry, 404: Retry, 100: Retry, 599: Retry},
		},
		"a class in capitals, an entry twice in its list": {
			StatusConfig{Ack: []string{"3XX", "3xx"}},
			map[int]Verdict{302: Ack, 200: Retry},
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := NewStatusTable(c.config)
			if err != nil {
				t.Fatal(err)
			}
			for code, want := range c.want {
				if got := table.Lookup(code); got != want {
					t.Errorf("%d is %v, want %v", code, got, want)
				}
			}
		})
	}
}

func TestStatusTableFaults(t *testing.T) {
	_, err := NewStatusTable(StatusConfig{
		Ack:   []string{"2xx", "20x", "", "600", "099", "6xx", "2000", "-20", "٢٠٠"},
		Retry: []string{"4XX", "503"},
		DLQ:   []string{"4xx", "503"},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`ack: "20x"`, `ack: ""`, `ack: "600"`, `ack: "099"`, `ack: "6xx"`, `ack: "2000"`, `ack: "-20"`, `ack: "٢٠٠"`, `dlq: "4xx" is also in retry`, `dlq: "503" is also in retry`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nsays nothing of %s", err, want)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 10 {
		t.Errorf("%d faults:\n%v", n, err)
	}
}

func FuzzStatusTable(f *testing.F) {
	f.Add("2xx", "3xx,429,5xx", "4xx", "")
	f.Add("-", "-", "-", "404")
	f.Fuzz(func(t *testing.T, ack, retry, dlq, drop string) {
		split := func(s string) []string {
			if s == "-" {
				return nil
			}
			return strings.Split(s, ",")
		}
		c := StatusConfig{split(ack), split(retry), split(dlq), split(drop)}
		table, err := NewStatusTable(c)
		if (table == nil) == (err == nil) {
			t.Fatal("neither or both of table and error")
		}
		if err != nil {
			return
		}
		for code := 100; code <= 599; code++ {
			got := table.Lookup(code)
			if got < Ack || got > Drop {
				t.Fatalf("%d is %v", code, got)
			}
			for i, list := range [][]string{c.Ack, c.Retry, c.DLQ, c.Drop} {
				if slices.Contains(list, fmt.Sprint(code)) && got != Verdict(i+1) {
					t.Fatalf("%d is %v, given as %v", code, got, Verdict(i+1))
				}
			}
		}
	})
}
