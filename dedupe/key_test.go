package dedupe

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestKeysDiffer(t *testing.T) {
	created := time.Unix(1700000000, 5)
	scopes := map[string]Scope{
		"plain":          NewScope("A", created, "b"),
		"other stream":   NewScope("B", created, "b"),
		"other consumer": NewScope("A", created, "c"),
		"made anew":      NewScope("A", created.Add(1), "b"),
		"moved border":   NewScope("Ab", created, ""),
		"no time":        NewScope("A", time.Time{}, "b"),
		"empty":          NewScope("", time.Time{}, ""),
	}
	seen := map[Key]string{}
	add := func(k Key, what string) {
		if other, dup := seen[k]; dup {
			t.Errorf("%s and %s have the same key", what, other)
		}
		seen[k] = what
	}
	for name, s := range scopes {
		add(s.Message(1, created), name+" message 1")
		add(s.Message(2, created), name+" message 2")
		add(s.Message(1, created.Add(1)), name+" message 1 later")
		add(s.Message(0, time.Time{}), name+" message 0")
		for _, id := range []string{"", "1", "1 ", "\x00", strings.Repeat("a", 215), strings.Repeat("a", 216), strings.Repeat("a", 500), strings.Repeat("a", 501), strings.Repeat("a", 5000)} {
			add(s.ID(id), name+" id "+id)
		}
		// Without the kind, these two would be the same bytes: 12 is the id's length.
		add(s.Message(12, created), name+" message 12")
		add(s.ID("\x00\x00\x00\x00\x65\x53\xf1\x00\x00\x00\x00\x05"), name+" id like a message")
	}
}

func TestKeysLast(t *testing.T) {
	created := time.Unix(1700000000, 5)
	a, b := NewScope("A", created, "b"), NewScope("A", created.In(time.FixedZone("", 3600)), "b")
	if a != b || a.ID("x") != b.ID("x") || a.Message(1, created.UTC()) != b.Message(1, created) {
		t.Error("the same thing has two keys")
	}
}

func TestIDsAreUnambiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00")), -1, 600, -1)
		x, y := text.Draw(t, "x"), text.Draw(t, "y")
		if (scope.ID(x) == scope.ID(y)) != (x == y) {
			t.Fatal("ids and keys disagree")
		}
	})
}

func TestKeysCostNoMemory(t *testing.T) {
	long := strings.Repeat("id", 5000)
	stored := time.Now()
	for name, f := range map[string]func(){
		"message":  func() { scope.Message(7, stored) },
		"short id": func() { scope.ID("order-4711") },
		"long id":  func() { scope.ID(long) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkMessage(b *testing.B) {
	stored := time.Now()
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		scope.Message(i, stored)
	}
}

func BenchmarkID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		scope.ID("0b9f8a0e-7a5d-4c41-9a9e-3a1d6f0c2b11")
	}
}
